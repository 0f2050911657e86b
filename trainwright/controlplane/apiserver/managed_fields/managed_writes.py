"""Updates managed fields on writes, and detects writes that change nothing.

Field managers can own the requested fields and defaults, not those that admission adds. A write to the main resource covers everything
except the status, a write to the status subresource the status and what goes with it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.schema.defaulting import apply_defaults
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import STRING, Struct
from trainwright.controlplane.apiserver.managed_fields.managers import FieldManager, ManagedFields, is_reset
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

NO_MANAGERS = ManagedFields()
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
_ADDED_LATER: dict[Kind, tuple[tuple[str, ...], ...]] = {
    kinds.POD: (("spec", "tolerations"), ("spec", "priority"), ("spec", "preemptionPolicy")),
    kinds.JOB: (
        ("spec", "selector"),
        *(("spec", "template", "metadata", "labels", label) for label in _JOB_LABELS),
        ("spec", "template", "metadata"),
        ("metadata", "labels"),
    ),
    kinds.SERVICE: (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "ipFamilies"), ("spec", "ipFamilyPolicy")),
    kinds.NAMESPACE: (("spec",),),
    kinds.CLAIM: (("metadata", "finalizers"),),
}
"""Fields of built-in kinds that admission and the server add after decoding; no manager owns them unless the request sets them."""
_BLANKS: dict[Kind, Obj] = {
    kinds.POD: {"spec": {"containers": None}},
    kinds.JOB: {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}},
    kinds.SERVICE: {"spec": {}},
    kinds.EVENT: {"involvedObject": {}, "source": {}},
    kinds.NAMESPACE: {"spec": {}},
    kinds.CLAIM: {"spec": {"resources": {}}},
    kinds.LEASE: {"spec": {}},
    kinds.NODE: {"spec": {}},
}
"""Structs that Go types of built-in kinds always have, so that they do not count as set."""


def managers_after_create(
    strategy: Strategy, asked: Obj, admitted: Obj, options: WriteOptions, owners: ManagedFields, now: str
) -> ManagedFields:
    """The managed fields of a new object: those of the request's manager, merged with the ones that it sends."""
    seen = view(strategy, asked, admitted, status=False)
    return owners.created(schema_of(strategy.kind), blank(strategy.kind), seen, updater(strategy.kind, options), now)


def managers_after_update(
    strategy: Strategy, old: Obj, asked: Obj, new: Obj, options: WriteOptions, owners: ManagedFields, now: str
) -> ManagedFields:
    """The managed fields of an object after an update or a patch."""
    before = status_of(strategy, old) if options.status else without_status(strategy.kind, old)
    after = view(strategy, asked, new, status=options.status)
    return owners.written(schema_of(strategy.kind), before, after, updater(strategy.kind, options), now)


def managed_fields_of(obj: Any) -> Any:
    """The managedFields of an object; None if it has none."""
    return obj["metadata"].get("managedFields") if isinstance(obj.get("metadata"), dict) else None


def managers_before_write(sent: Any, old: Obj, options: WriteOptions) -> ManagedFields:
    """The managed fields before a write: those in the request if they are valid, otherwise the stored ones."""
    given = None if options.status else managed_fields_of(sent)
    if is_reset(given):
        return NO_MANAGERS
    if given is None or given == old["metadata"].get("managedFields"):
        return ManagedFields.stored(old)
    found = ManagedFields.of(given)
    return found if found.entries else ManagedFields.stored(old)


def updater(kind: Kind, options: WriteOptions) -> FieldManager:
    """The field manager of an update."""
    return FieldManager(options.field_manager, "Update", kind.api_version, "status" if options.status else "")


def applier(kind: Kind, options: WriteOptions) -> FieldManager:
    """The field manager of an apply."""
    return FieldManager(options.field_manager, "Apply", kind.api_version, "status" if options.status else "")


def set_managed_fields(obj: Obj, owners: ManagedFields) -> None:
    """Set managedFields of an object in place."""
    if owners.entries:
        obj["metadata"]["managedFields"] = owners.encoded()
    else:
        obj["metadata"].pop("managedFields", None)


def is_unchanged(new: Obj, old: Obj, owners: ManagedFields) -> bool:
    """Whether a write changes nothing except timestamps in managedFields."""
    if any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - {"metadata"}):
        return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    before.pop("managedFields", None), after.pop("managedFields", None)
    return before == after and owners.equals_ignoring_time(ManagedFields.stored(old))


@cache
def schema_of(kind: Kind) -> Struct:
    """The schema for the field sets of a kind."""
    admission_spec = ADMISSION_SPECS.get(kind.kind)
    if admission_spec is None or admission_spec.kind != kind:
        return Struct({"apiVersion": STRING, "kind": STRING, "metadata": struct_named("ObjectMeta")}, open=True)
    return replace(admission_spec.schema, fields={**admission_spec.schema.fields, "metadata": struct_named("ObjectMeta")})


def blank(kind: Kind) -> Obj:
    return {"metadata": {}, **_BLANKS.get(kind, {})}


def view(strategy: Strategy, asked: Obj, admitted: Obj, *, status: bool) -> Obj:
    """The part of a write that its field manager owns: `asked` is the request's object, `admitted` the one to be stored."""
    if status:
        return status_of(strategy, admitted)
    if strategy.custom:
        schema = schema_of(strategy.kind)
        read = asked if schema.open else apply_defaults(schema, asked)[0]
        return without_status(strategy.kind, read)
    seen = without_status(strategy.kind, admitted)
    for path in _ADDED_LATER.get(strategy.kind, ()):
        seen = _less(seen, asked, path)
    return seen


def _less(seen: Any, asked: Any, path: tuple[str, ...]) -> Any:
    """`seen` without the field at `path`, unless the request sets it."""
    head, *rest = path
    if not isinstance(seen, dict) or head not in seen:
        return seen
    given = asked.get(head) if isinstance(asked, dict) else None
    if rest:
        return {**seen, head: _less(seen[head], given, tuple(rest))}
    return seen if given is not None else {key: value for key, value in seen.items() if key != head}


def without_status(kind: Kind, obj: Obj) -> Obj:
    """The part of an object that a write to the main resource covers."""
    return {key: value for key, value in obj.items() if key != "status"} if kind.status else obj


def status_of(strategy: Strategy, obj: Obj) -> Obj:
    """The part of an object that a write to the status subresource covers."""
    given = obj.get("metadata") or {}
    metadata = {part: given[part] for part in strategy.status_metadata if given.get(part)}
    return {"metadata": metadata, "status": obj["status"]} if obj.get("status") is not None else {"metadata": metadata}
