"""Whose fields a write changes: the owners that it starts from, those that it leaves, and whether it changed anything at all."""

from __future__ import annotations

from typing import Any

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.managed_fields.managed_views import blank, schema_of, status_of, view, without_status
from trainwright.controlplane.apiserver.managed_fields.managers import Owner, Ownership, is_reset
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

NOBODY = Ownership()


def owners_of_new(strategy: Strategy, asked: Obj, admitted: Obj, options: WriteOptions, owners: Ownership, now: str) -> Ownership:
    """Who owns a new object: its author, and whom it names itself."""
    seen = view(strategy, asked, admitted, status=False)
    return owners.created(schema_of(strategy.kind), blank(strategy.kind), seen, updater(strategy.kind, options), now)


def owners_after(
    strategy: Strategy, old: Obj, asked: Obj, new: Obj, options: WriteOptions, owners: Ownership, now: str
) -> Ownership:
    """Who owns an object after an update or a patch."""
    before = status_of(old) if options.status else without_status(strategy.kind, old)
    after = view(strategy, asked, new, status=options.status)
    return owners.written(schema_of(strategy.kind), before, after, updater(strategy.kind, options), now)


def managed_in(obj: Any) -> Any:
    """The managedFields that an object carries."""
    return obj["metadata"].get("managedFields") if isinstance(obj.get("metadata"), dict) else None


def owners_before(sent: Any, old: Obj, options: WriteOptions) -> Ownership:
    """The owners that a write starts from: those that its author sends, where they make sense, otherwise the known ones."""
    given = None if options.status else managed_in(sent)
    if is_reset(given):
        return NOBODY
    if given is None or given == old["metadata"].get("managedFields"):
        return Ownership.stored(old)
    found = Ownership.of(given)
    return found if found.entries else Ownership.stored(old)


def updater(kind: Kind, options: WriteOptions) -> Owner:
    """The author of an update, as an owner."""
    return Owner(options.manager, "Update", kind.api_version, "status" if options.status else "")


def applier(kind: Kind, options: WriteOptions) -> Owner:
    """The author of an apply, as an owner."""
    return Owner(options.manager, "Apply", kind.api_version, "status" if options.status else "")


def record_owners(obj: Obj, owners: Ownership) -> None:
    """Write the owners into an object, in place."""
    if owners.entries:
        obj["metadata"]["managedFields"] = owners.encoded()
    else:
        obj["metadata"].pop("managedFields", None)


def is_same(new: Obj, old: Obj, owners: Ownership) -> bool:
    """Whether a write changes nothing; that a field was written again counts for nothing."""
    if any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - {"metadata"}):
        return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    before.pop("managedFields", None), after.pop("managedFields", None)
    return before == after and owners.same_but_for_time(Ownership.stored(old))
