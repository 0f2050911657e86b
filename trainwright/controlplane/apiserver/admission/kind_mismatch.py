"""Errors for objects whose kind differs from the kind of the request path.

For built-in kinds decoding fails with the kind that was sent; custom resources are validated as the kind of the path.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import ApiError, BadRequest, Invalid, Problem, Undecodable
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.schema.check import findings

_BUILT_IN = {(kind.api_version, kind.kind) for kind in kinds.ALL}


def kind_mismatch_error(kind: Kind, obj: Obj, *, custom: bool, old: Obj | None) -> ApiError:
    """The error for an object with another apiVersion or kind; `old` is the object that it would replace."""
    api_version, name = str(obj.get("apiVersion") or kind.api_version), str(obj.get("kind") or kind.kind)
    if not custom:
        version = api_version.rpartition("/")[2]
        why = _unread(kind, obj, api_version, name)
        return Undecodable(f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}')
    if api_version != kind.api_version:
        return BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
    problems = [Problem("kind", f'Invalid value: "{name}": must be {kind.kind}')]
    # Defaults are not applied to an object of another kind, so fields that were defaulted in the stored object are missing here.
    if kind.kind in ADMISSION_SPECS:
        problems += findings(ADMISSION_SPECS[kind.kind].schema, obj, old).rules
    metadata = obj.get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else ""
    return Invalid.of(name, str(named or ""), problems, kind.group)


def _unread(kind: Kind, obj: Obj, api_version: str, name: str) -> str:
    if (api_version, name) not in _BUILT_IN:
        return f'no kind "{name}" is registered for version "{api_version}" in scheme "built-in"'
    if name == kinds.SECRET.kind and isinstance(obj.get("data"), dict):
        faults = [at for value in obj["data"].values() if (at := _corrupt_at(value)) is not None]
        if faults:
            return f"illegal base64 data at input byte {faults[0]}"
    package = kind.group.partition(".")[0] or "core"
    return f"converting ({api_version.rpartition('/')[2]}.{name}) to ({package}.{kind.kind}): unknown conversion"


def _corrupt_at(value: Any) -> int | None:
    """The index of the first byte that is not valid base64; None if the value is valid."""
    text = str(value)
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
        return next((at for at, letter in enumerate(text) if letter not in alphabet), len(text) - len(text) % 4)
    return None
