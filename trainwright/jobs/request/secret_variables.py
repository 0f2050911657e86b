"""One Secret for object stores and one for the hub, as variables of the steps that need them. Pure.

By reference and optional: a Secret that does not exist is a variable that is not set, and public data needs none.
"""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.jobs.request.resume import STORE_VARIABLES

HUB_KEY = "HF_TOKEN"
_UPSTREAM_STORE = {
    "ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID",
    "SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY",
    "ENDPOINT": "AWS_ENDPOINT_URL",
    "REGION": "AWS_REGION",
}
"""The names that Trainer's own S3 initializers read."""


def hub_variables(secret: str) -> list[Obj]:
    """The token under the name that Hugging Face's libraries read."""
    return [_reference(HUB_KEY, secret, HUB_KEY)] if secret else []


def initializer_secrets(uri: str, store_secret: str, hub_secret: str) -> list[Obj]:
    """What an initializer reads a source with: Trainer's names beside the usual ones."""
    if uri.startswith("s3://") and store_secret:
        own = [_reference(name, store_secret, name) for name in STORE_VARIABLES]
        return own + [_reference(name, store_secret, key) for name, key in _UPSTREAM_STORE.items()]
    if uri.startswith("hf://") and hub_secret:
        return [*hub_variables(hub_secret), _reference("ACCESS_TOKEN", hub_secret, HUB_KEY)]
    return []


def without(variables: list[Obj], taken: list[Obj]) -> list[Obj]:
    """Those that nobody has set otherwise."""
    names = {entry["name"] for entry in taken}
    return [entry for entry in variables if entry["name"] not in names]


def _reference(variable: str, secret: str, key: str) -> Obj:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}}}
