"""Variables with credentials and addresses of object stores and the Hugging Face Hub, and references to the Secrets with them. Pure.

The variables of a store are the supported keys of its Secret: a runtime patch does not support `envFrom`, so it has to list each one.
The references are optional: a missing Secret leaves the variable unset, and public data needs none.
"""

from __future__ import annotations

from trainwright.api.objects import Obj

_S3 = (
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_CA_BUNDLE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SKIP_SIGNATURE",
)
_BY_SCHEME = {
    "s3": _S3,
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY", "STORAGE_EMULATOR_HOST"),
    "az": (
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_TENANT_ID",
    ),
}


HUB_KEY = "HF_TOKEN"
_UPSTREAM_STORE = {
    "ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID",
    "SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY",
    "ENDPOINT": "AWS_ENDPOINT_URL",
    "REGION": "AWS_REGION",
}
"""Variables of Trainer's S3 initializers."""


def has_store_variables(uri: str) -> bool:
    """Whether a URI is of an object store."""
    return uri.partition("://")[0] in _BY_SCHEME


def store_variables(uri: str) -> tuple[str, ...]:
    """Return the variables for the store of a URI; those of S3 for other schemes."""
    return _BY_SCHEME.get(uri.partition("://")[0], _S3)


def all_store_variables() -> tuple[str, ...]:
    """Return the variables for all object stores."""
    return tuple(name for names in _BY_SCHEME.values() for name in names)


def hub_variables(secret: str) -> list[Obj]:
    """Return the variable with the token, as Hugging Face libraries read it."""
    return [_reference(HUB_KEY, secret, HUB_KEY)] if secret else []


def step_secrets(store_secret: str, hub_secret: str) -> dict[str, Obj]:
    """Return the credentials of a step that may read any store and the hub, as the setting `env` takes them."""
    variables = [_reference(name, store_secret, name) for name in all_store_variables()] if store_secret else []
    return {entry["name"]: {"valueFrom": entry["valueFrom"]} for entry in [*variables, *hub_variables(hub_secret)]}


def initializer_secrets(uri: str, store_secret: str, hub_secret: str) -> list[Obj]:
    """Return the credentials of an initializer for a URI, under the usual names and those of Trainer."""
    if has_store_variables(uri) and store_secret:
        variables = [_reference(name, store_secret, name) for name in store_variables(uri)]
        upstream = _UPSTREAM_STORE if uri.startswith("s3://") else {}
        return variables + [_reference(name, store_secret, key) for name, key in upstream.items()]
    if uri.startswith("hf://") and hub_secret:
        return [*hub_variables(hub_secret), _reference("ACCESS_TOKEN", hub_secret, HUB_KEY)]
    return []


def exclude_names(variables: list[Obj], existing: list[Obj]) -> list[Obj]:
    """Return the variables whose names are not in `existing`."""
    names = {entry["name"] for entry in existing}
    return [entry for entry in variables if entry["name"] not in names]


def _reference(variable: str, secret: str, key: str) -> Obj:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}}}
