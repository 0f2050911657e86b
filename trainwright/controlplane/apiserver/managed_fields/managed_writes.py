"""Updates managed fields on writes, and detects writes that change nothing."""

from __future__ import annotations

from typing import Any

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.managed_fields.managed_views import blank, schema_of, status_of, view, without_status
from trainwright.controlplane.apiserver.managed_fields.managers import FieldManager, ManagedFields, is_reset
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

NO_MANAGERS = ManagedFields()


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
    before = status_of(old) if options.status else without_status(strategy.kind, old)
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
