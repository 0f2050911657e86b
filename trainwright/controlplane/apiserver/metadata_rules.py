"""What may stand in an object's metadata: names, labels, annotations, finalizers, owners."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.kinds import NAMESPACE, SERVICE, Kind
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.registry import strategy_of

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NOT_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
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
_ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes of all annotations of an object together, as in Kubernetes."""


def metadata_problems(kind: Kind, metadata: Obj) -> Iterator[Problem]:
    """Everything wrong with metadata whose types are right."""
    yield from _name_problems(kind, metadata.get("name", ""))
    yield from _owner_problems(metadata.get("ownerReferences") or [])
    for key, value in (metadata.get("labels") or {}).items():
        for why in _key_faults(key):
            yield Problem("metadata.labels", f'Invalid value: "{key}": {why}')
        if len(value) > 63:
            yield Problem("metadata.labels", f'Invalid value: "{value}": must be no more than 63 bytes')
        elif value and not _NAME_PART.match(value):
            yield Problem("metadata.labels", f'Invalid value: "{value}": {_NOT_VALUE}')
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        for why in _key_faults(key.lower()):
            yield Problem("metadata.annotations", f'Invalid value: "{key}": {why}')
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        message = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        yield Problem("metadata.annotations", message, "FieldValueTooLong")
    for index, finalizer in enumerate(metadata.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not strategy_of(kind).custom:
            message = f'Invalid value: "{finalizer}": name is neither a standard finalizer name nor is it fully qualified'
            yield Problem(f"metadata.finalizers[{index}]", message)


def _key_faults(key: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        yield f"prefix part {_NOT_SUBDOMAIN}" if prefix else "prefix part must be non-empty"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 bytes"
    if not _NAME_PART.match(name):
        yield _NOT_NAME_PART


def _name_problems(kind: Kind, name: str) -> Iterator[Problem]:
    if not name:
        yield Problem("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")
    elif kind in (NAMESPACE, SERVICE):
        if len(name) > 63:
            yield Problem("metadata.name", f'Invalid value: "{name}": must be no more than 63 characters')
        elif not _LABEL.match(name):
            reason = "must not contain dots" if kind == SERVICE and _SUBDOMAIN.match(name) else _NOT_LABEL
            yield Problem("metadata.name", f'Invalid value: "{name}": {reason}')
    elif len(name) > 253:
        yield Problem("metadata.name", f'Invalid value: "{name}": must be no more than 253 characters')
    elif not _SUBDOMAIN.match(name):
        yield Problem("metadata.name", f'Invalid value: "{name}": {_NOT_SUBDOMAIN}')


def _owner_problems(owners: list[Obj]) -> Iterator[Problem]:
    for owner in owners:
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                yield Problem(f"metadata.ownerReferences.{part}", 'Invalid value: "": must not be empty')
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        yield Problem("metadata.ownerReferences", "Only one reference can have Controller set to true")
