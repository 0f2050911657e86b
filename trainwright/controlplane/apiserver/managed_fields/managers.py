"""Who owns which fields of an object: what `metadata.managedFields` records, and what apply decides by it.

A manager applies (Apply) or writes (Update), on the object or on its status; each is an owner of its own. A write takes what it
changes from everybody; an apply that would change what others own is a conflict, unless it is forced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from trainwright.api.errors import BadRequest, Conflict
from trainwright.api.objects import Obj
from trainwright.api.schema.types import Schema
from trainwright.controlplane.apiserver.managed_fields.field_diff import added, changes, fields_of, merged, pruned
from trainwright.controlplane.apiserver.managed_fields.field_set import (
    Fields,
    are_fields,
    difference,
    intersection,
    paths,
    shown,
    union,
)

MOST_UPDATERS = 10
"""Entries of operation Update that an object may have; the oldest beyond it are put together."""
_ANCIENT = "ancient-changes"
_BEFORE_APPLY = "before-first-apply"
_SERVERS_OWN: Fields = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        **{
            f"f:{name}": {}
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        },
    },
}
"""Fields that nobody owns: identity, and what the server writes itself."""


@dataclass(frozen=True)
class Owner:
    """Who writes, and through which door. Appliers are the same in every version of the API."""

    manager: str
    operation: Literal["Apply", "Update"]
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.manager, self.operation, self.subresource, self.api_version if self.operation == "Update" else ""

    def __str__(self) -> str:
        """As a conflict names it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True)
class Entry:
    """What one owner owns, and since when."""

    owner: Owner
    fields: Fields
    time: str = ""


Entries = dict[tuple[str, str, str, str], Entry]


@dataclass(frozen=True)
class Ownership:
    """The owners of one object, and what they own. Operations return new values."""

    entries: Entries = field(default_factory=dict)

    @classmethod
    def of(cls, managed: Any) -> Ownership:
        """From `managedFields`; entries that make no sense are left out."""
        found = (_entry(raw) for raw in (managed if isinstance(managed, list) else []) if isinstance(raw, dict))
        return cls({entry.owner.key: entry for entry in found if entry is not None})

    @classmethod
    def stored(cls, obj: Obj) -> Ownership:
        """The owners of an object as the store has it: what stands there was written by `encoded`."""
        entries = (_read(raw) for raw in obj["metadata"].get("managedFields") or ())
        return cls({entry.owner.key: entry for entry in entries})

    def encoded(self) -> list[Obj]:
        """As `managedFields` holds it: appliers first, older entries first."""
        ordered = sorted(
            self.entries.values(),
            key=lambda entry: (
                entry.owner.operation,
                entry.time,
                entry.owner.manager,
                entry.owner.api_version,
                entry.owner.subresource,
            ),
        )
        return [_encoded(entry) for entry in ordered]

    def written(self, schema: Schema, old: Obj, new: Obj, owner: Owner, now: str) -> Ownership:
        """After a create, update or patch that makes `new` of `old`: its author owns what it changed or added."""
        found = changes(schema, old, new)
        if not found:
            return self
        taken = difference(union(found.added, found.modified), _SERVERS_OWN)
        entries = _left(self.entries, union(union(found.added, found.modified), found.removed))
        if taken:
            mine = entries.get(owner.key)
            entries[owner.key] = Entry(owner, union(mine.fields, taken) if mine else taken, now)
        return Ownership(_capped(entries))

    def created(self, schema: Schema, blank: Obj, new: Obj, owner: Owner, now: str) -> Ownership:
        """As `written`, of a new object: `blank` is what such an object has before anybody says anything, metadata at least."""
        if self.entries:
            return self.written(schema, blank, new, owner, now)
        mine = added(schema, blank, new)
        metadata = {key: node for key, node in mine.get("f:metadata", {}).items() if key not in _SERVERS_OWN["f:metadata"]}
        mine = {key: node for key, node in mine.items() if key not in _SERVERS_OWN}
        if metadata:
            mine["f:metadata"] = metadata
        return Ownership({owner.key: Entry(owner, mine, now)}) if mine else self

    def before_apply(self, schema: Schema, live: Obj, api_version: str, now: str) -> Ownership:
        """These owners; where there are none, everything belongs to whoever wrote the object before anybody applied."""
        if self.entries:
            return self
        return self.written(schema, {"metadata": {}}, live, Owner(_BEFORE_APPLY, "Update", api_version), now)

    def applied(
        self, schema: Schema, live: Obj, config: Obj, owner: Owner, now: str, *, yielded: Fields | None = None
    ) -> tuple[Obj, Ownership]:
        """The object that an apply makes of `live`, and its owners. Raises Conflict with every field that others own.

        What the applier owned before and does not mention any more goes, unless somebody else owns it too. Fields in `yielded`
        are no conflict; without it, none are: the apply is forced.
        """
        last = self.entries.get(owner.key)
        mine = difference(fields_of(schema, config), _SERVERS_OWN)
        others = {key: entry for key, entry in self.entries.items() if key != owner.key}
        result = merged(schema, live, config)
        if last is not None and last.fields:
            kept = mine
            for entry in others.values():
                kept = union(kept, entry.fields)
            result = pruned(schema, result, last.fields, union(kept, _SERVERS_OWN))
        found = changes(schema, live, result)
        taken = union(found.added, found.modified)
        if yielded is not None:
            _refuse_conflicts(others.values(), difference(taken, yielded))
        entries = _left(others, union(taken, found.removed))
        if mine:
            time = now if found else last.time if last is not None else ""
            entries[owner.key] = Entry(owner, mine, time)
        return result, Ownership(_capped(entries))

    def same_but_for_time(self, other: Ownership) -> bool:
        """Whether two states differ in nothing that counts as a change."""
        return self.entries.keys() == other.entries.keys() and all(
            entry.fields == other.entries[key].fields for key, entry in self.entries.items()
        )


def is_reset(managed: Any) -> bool:
    """Whether a client asks to forget all owners: one empty entry."""
    return bool(managed == [{}])


def _entry(raw: Obj) -> Entry | None:
    operation, fields = raw.get("operation"), raw.get("fieldsV1")
    if operation not in ("Apply", "Update") or not are_fields(fields):
        return None
    if not all(isinstance(raw.get(name) or "", str) for name in ("manager", "apiVersion", "subresource", "time")):
        return None
    return _read(raw)


def _read(raw: Obj) -> Entry:
    owner = Owner(raw.get("manager") or "", raw["operation"], raw.get("apiVersion") or "", raw.get("subresource") or "")
    return Entry(owner, raw["fieldsV1"], raw.get("time") or "")


def _encoded(entry: Entry) -> Obj:
    owner = entry.owner
    raw: Obj = {
        "apiVersion": owner.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields,
        "manager": owner.manager,
        "operation": owner.operation,
    }
    if owner.subresource:
        raw["subresource"] = owner.subresource
    if entry.time:
        raw["time"] = entry.time
    return raw


def _left(entries: Entries, taken: Fields) -> Entries:
    """The entries without what was taken; those of whom nothing is left are gone."""
    left = {}
    for key, entry in entries.items():
        fields = difference(entry.fields, taken) if taken else entry.fields
        if fields:
            left[key] = entry if fields is entry.fields or fields == entry.fields else replace(entry, fields=fields)
    return left


def _capped(entries: Entries) -> Entries:
    updaters = [entry for entry in entries.values() if entry.owner.operation == "Update"]
    if len(updaters) <= MOST_UPDATERS:
        return entries
    oldest = sorted(updaters, key=lambda entry: (entry.time, entry.owner.manager))[: len(updaters) - MOST_UPDATERS + 1]
    kept = {key: entry for key, entry in entries.items() if entry not in oldest}
    for entry in oldest:
        owner = Owner(_ANCIENT, "Update", entry.owner.api_version)
        known = kept.get(owner.key)
        kept[owner.key] = Entry(owner, union(known.fields, entry.fields) if known else entry.fields, entry.time)
    return kept


def _refuse_conflicts(others: Any, taken: Fields) -> None:
    found = [
        (str(entry.owner), shown(path))
        for entry in sorted(others, key=lambda entry: entry.owner.key)
        for path in paths(intersection(entry.fields, taken))
    ]
    if found:
        causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": path} for owner, path in found]
        raise Conflict(_told(found), details={"causes": causes})


def _told(found: list[tuple[str, str]]) -> str:
    if len(found) == 1:
        return f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(_by_owner(found))


def _by_owner(found: list[tuple[str, str]]) -> Iterator[str]:
    for owner in dict.fromkeys(owner for owner, _ in found):
        yield f"conflicts with {owner}:"
        yield from (f"- {path}" for other, path in found if other == owner)


def check_config(config: Obj, api_version: str) -> None:
    """Raises BadRequest for an applied configuration that says who owns it, or is of another version."""
    if (config.get("metadata") or {}).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    if config.get("apiVersion") != api_version:
        found = orjson.dumps(config.get("apiVersion") or "").decode().strip('"')
        raise BadRequest(f"Incorrect version specified in apply patch. Specified patch version: {found}, expected: {api_version}")
