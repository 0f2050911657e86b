"""Validation of metadata: names, labels, annotations, finalizers, owner references."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from trainwright.api.errors import Problem
from trainwright.api.kinds import (
    ENDPOINT_SLICE,
    EVENT,
    LEASE,
    LIMIT_RANGE,
    NAMESPACE,
    POD_TEMPLATE,
    PRIORITY_CLASS,
    RBAC_KINDS,
    RESOURCE_QUOTA,
    RUNTIME_CLASS,
    SERVICE,
    Kind,
)
from trainwright.api.objects import Obj

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NOT_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_NOT_DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with "
    "an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_NOT_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NOT_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_STANDARD_FINALIZERS = ("foregroundDeletion", "orphan", "kubernetes")
_LOOKED_AT_IN_A_CHANGE = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences")
_LOOKED_AT_AS_A_WHOLE = (LIMIT_RANGE, ENDPOINT_SLICE)
"""Kinds whose update validation is their create validation."""
_LOOKED_AT_AS_A_CHANGE = (LEASE, POD_TEMPLATE, RESOURCE_QUOTA, PRIORITY_CLASS, RUNTIME_CLASS)
"""Kinds whose update validation checks only the change of the metadata."""
_ANNOTATIONS_LIMIT = 256 * 1024
_LONGEST_KEY = 253 + len("/") + 63
"""Maximum bytes of all annotations of an object, as in Kubernetes."""


def metadata_problems(kind: Kind | None, metadata: Obj, *, custom: bool) -> Iterator[Problem]:
    """Problems of metadata with valid types. Finalizers of `custom` resources need no domain."""
    prefix = metadata.get("generateName") or ""
    if prefix and not _SUBDOMAIN.match(prefix.rstrip("-.") + "x"):
        yield Problem("metadata.generateName", f'Invalid value: "{prefix}": {NOT_SUBDOMAIN}')
    yield from _name_problems(kind, metadata.get("name", ""))
    yield from _owner_problems(metadata.get("ownerReferences") or [])
    yield from labelling_problems(metadata, "metadata")
    for index, finalizer in enumerate(metadata.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not custom:
            message = f'Invalid value: "{finalizer}": name is neither a standard finalizer name nor is it fully qualified'
            yield Problem(f"metadata.finalizers[{index}]", message)


def changed_metadata_problems(kind: Kind, metadata: Obj, *, custom: bool) -> Iterator[Problem]:
    """Problems of the metadata of an updated object, repeated as often as an API server repeats them.

    Metadata is validated as a whole and as a change for all kinds, then again by the validation of the kind.
    """
    whole = list(metadata_problems(kind, metadata, custom=custom))
    change = [problem for problem in whole if problem.field.startswith(_LOOKED_AT_IN_A_CHANGE)]
    yield from whole + change
    if kind not in _LOOKED_AT_AS_A_WHOLE and kind != EVENT:
        yield from change
    if kind not in _LOOKED_AT_AS_A_CHANGE and kind != EVENT and not custom:
        yield from whole


def labelling_problems(metadata: Obj, path: str) -> Iterator[Problem]:
    """Problems of labels and annotations, of an object or of a template."""
    for key, value in (metadata.get("labels") or {}).items():
        for why in key_faults(key):
            yield Problem(f"{path}.labels", f'Invalid value: "{key}": {why}')
        if fault := label_value_fault(value):
            yield Problem(f"{path}.labels", f'Invalid value: "{value}": {fault}')
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        for why in key_faults(key.lower()):
            yield Problem(f"{path}.annotations", f'Invalid value: "{key}": {why}')
    if _size(annotations) > _ANNOTATIONS_LIMIT:
        yield Problem(f"{path}.annotations", f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes", "FieldValueTooLong")


def _size(annotations: dict[str, str]) -> int:
    """The bytes of keys and values."""
    text = "".join(annotations) + "".join(annotations.values())
    return len(text) if text.isascii() else len(text.encode())


def metadata_warnings(metadata: Obj) -> Iterator[str]:
    """Warnings for discouraged metadata of a custom resource."""
    for finalizer in metadata.get("finalizers") or []:
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield (
                f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name to avoid accidental conflicts '
                "with other finalizer writers"
            )


def is_subdomain(name: str) -> bool:
    """Whether a name is an RFC 1123 subdomain; the length is not checked."""
    return _SUBDOMAIN.match(name) is not None


def label_fault(name: str) -> str:
    """Why a name is not an RFC 1035 label, or an empty string; the length is not checked."""
    return "" if _DNS_1035.match(name) else _NOT_DNS_1035


def label_value_fault(value: str) -> str:
    """Why a text is not a valid label value, or an empty string."""
    # Only short texts are cached: clients choose them, up to megabytes.
    return "must be no more than 63 bytes" if len(value) > 63 else _short_value_fault(value)


@lru_cache(4096)
def _short_value_fault(value: str) -> str:
    return "" if not value or _NAME_PART.match(value) else _NOT_VALUE


def container_name_fault(name: str) -> str:
    """Why a name is not an RFC 1123 label, or an empty string."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL.match(name) else _NOT_LABEL


def key_faults(key: str) -> tuple[str, ...]:
    """Why a text is not a valid label key. Short ones are cached, because controllers always write the same keys."""
    return _short_key_faults(key) if len(key) <= _LONGEST_KEY else tuple(_key_faults(key))


@lru_cache(4096)
def _short_key_faults(key: str) -> tuple[str, ...]:
    return tuple(_key_faults(key))


def _key_faults(key: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        yield f"prefix part {NOT_SUBDOMAIN}" if prefix else "prefix part must be non-empty"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 bytes"
    if not _NAME_PART.match(name):
        yield _NOT_NAME_PART


def _name_problems(kind: Kind | None, name: str) -> Iterator[Problem]:
    if not name:
        yield Problem("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")
    elif kind in RBAC_KINDS:
        if fault := _path_segment_fault(name):
            yield Problem("metadata.name", f'Invalid value: "{name}": {fault}')
    elif kind in (NAMESPACE, SERVICE):
        if len(name) > 63:
            yield Problem("metadata.name", f'Invalid value: "{name}": must be no more than 63 characters')
        elif not _LABEL.match(name):
            reason = "must not contain dots" if kind == SERVICE and _SUBDOMAIN.match(name) else _NOT_LABEL
            yield Problem("metadata.name", f'Invalid value: "{name}": {reason}')
    elif len(name) > 253:
        yield Problem("metadata.name", f'Invalid value: "{name}": must be no more than 253 characters')
    elif not _SUBDOMAIN.match(name):
        yield Problem("metadata.name", f'Invalid value: "{name}": {NOT_SUBDOMAIN}')


def _path_segment_fault(name: str) -> str:
    """Why a name cannot be a segment of a URL path, or an empty string: names of roles may have colons, for one."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{character}'" for character in "/%" if character in name), "")


def _owner_problems(owners: list[Obj]) -> Iterator[Problem]:
    for owner in owners:
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                yield Problem(f"metadata.ownerReferences.{part}", 'Invalid value: "": must not be empty')
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            why = "/v1, Kind=Event is disallowed from being an owner"
            yield Problem("metadata.ownerReferences", f"Invalid value: {_owner(owner)}: {why}")
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        shown = f"[{','.join(map(_owner, owners))}]"
        why = 'Only one reference can have Controller set to true. Found "true" in references for '
        yield Problem("metadata.ownerReferences", f"Invalid value: {shown}: {why}{' and '.join(controllers[:2])}")


def _owner(owner: Obj) -> str:
    ordered = {
        key: owner[key] for key in ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion") if key in owner
    }
    return json.dumps(ordered, separators=(",", ":"))
