"""Field ownership: reads and writes `metadata.managedFields`, and implements apply.

Each combination of manager, operation (Apply or Update) and subresource is a separate owner. An update takes ownership of the fields
that it changes; an apply that would change fields of other owners is a conflict, unless it is forced. Client-side apply migrates
through kubectl's last-applied-configuration annotation: kubectl may take over fields in it that are unchanged since, whichever manager
owns them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from trainwright.api.errors import BadRequest, Conflict
from trainwright.api.objects import Obj, annotations_of
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

MAX_UPDATE_ENTRIES = 10
"""Maximum Update entries of an object; older ones are merged into one entry."""
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
"""Fields that no manager owns: identity and fields set by the server."""
_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"


@dataclass(frozen=True)
class FieldManager:
    """A manager, its operation and subresource. Apply entries are independent of the API version."""

    manager: str
    operation: Literal["Apply", "Update"]
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.manager, self.operation, self.subresource, self.api_version if self.operation == "Update" else ""

    def __str__(self) -> str:
        """The owner as conflict messages name it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True)
class Entry:
    """The fields of one owner and the time of its last change."""

    owner: FieldManager
    fields: Fields
    time: str = ""


Entries = dict[tuple[str, str, str, str], Entry]


@dataclass(frozen=True)
class ManagedFields:
    """The owners of one object and their fields. Immutable: operations return new values."""

    entries: Entries = field(default_factory=dict)

    @classmethod
    def of(cls, managed: Any) -> ManagedFields:
        """Parse `managedFields` from a client; invalid entries are ignored."""
        found = (_entry(raw) for raw in (managed if isinstance(managed, list) else []) if isinstance(raw, dict))
        return cls({entry.owner.key: entry for entry in found if entry is not None})

    @classmethod
    def stored(cls, obj: Obj) -> ManagedFields:
        """Parse `managedFields` of a stored object, which `encoded` wrote."""
        entries = (_read(raw) for raw in obj["metadata"].get("managedFields") or ())
        return cls({entry.owner.key: entry for entry in entries})

    def encoded(self) -> list[Obj]:
        """Serialize to `managedFields`: Apply entries first, then by time."""
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

    def written(self, schema: Schema, old: Obj, new: Obj, owner: FieldManager, now: str) -> ManagedFields:
        """The ownership after a write from `old` to `new`: `owner` owns the added and modified fields."""
        found = changes(schema, old, new)
        if not found:
            return self
        taken = difference(union(found.added, found.modified), _SERVERS_OWN)
        entries = _left(self.entries, union(union(found.added, found.modified), found.removed))
        if taken:
            mine = entries.get(owner.key)
            entries[owner.key] = Entry(owner, union(mine.fields, taken) if mine else taken, now)
        return ManagedFields(_capped(entries))

    def created(self, schema: Schema, blank: Obj, new: Obj, owner: FieldManager, now: str) -> ManagedFields:
        """The ownership of a new object, like `written`; `blank` holds the structs that every object of its kind has."""
        if self.entries:
            return self.written(schema, blank, new, owner, now)
        mine = added(schema, blank, new)
        metadata = {key: node for key, node in mine.get("f:metadata", {}).items() if key not in _SERVERS_OWN["f:metadata"]}
        mine = {key: node for key, node in mine.items() if key not in _SERVERS_OWN}
        if metadata:
            mine["f:metadata"] = metadata
        return ManagedFields({owner.key: Entry(owner, mine, now)}) if mine else self

    def before_apply(self, schema: Schema, live: Obj, api_version: str, now: str) -> ManagedFields:
        """The ownership before an apply: an object without managed fields is owned by `before-first-apply`."""
        if self.entries:
            return self
        return self.written(schema, {"metadata": {}}, live, FieldManager(_BEFORE_APPLY, "Update", api_version), now)

    def applied(
        self, schema: Schema, live: Obj, config: Obj, owner: FieldManager, now: str, *, yielded: Fields | None = None
    ) -> tuple[Obj, ManagedFields]:
        """Apply `config` to `live`; returns the new object and its ownership. Raises Conflict with all conflicting fields.

        Fields that the applier owned and no longer sets are removed, unless another manager owns them too. Fields in `yielded`
        do not conflict; None forces the apply.
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
        return result, ManagedFields(_capped(entries))

    def equals_ignoring_time(self, other: ManagedFields) -> bool:
        """Whether two ownerships are equal except for timestamps."""
        return self.entries.keys() == other.entries.keys() and all(
            entry.fields == other.entries[key].fields for key, entry in self.entries.items()
        )


def _entry(raw: Obj) -> Entry | None:
    operation, fields = raw.get("operation"), raw.get("fieldsV1")
    if operation not in ("Apply", "Update") or not are_fields(fields):
        return None
    if not all(isinstance(raw.get(name) or "", str) for name in ("manager", "apiVersion", "subresource", "time")):
        return None
    return _read(raw)


def _read(raw: Obj) -> Entry:
    owner = FieldManager(raw.get("manager") or "", raw["operation"], raw.get("apiVersion") or "", raw.get("subresource") or "")
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
    """The entries without the fields in `taken`; empty entries are removed."""
    left = {}
    for key, entry in entries.items():
        fields = difference(entry.fields, taken) if taken else entry.fields
        if fields:
            left[key] = entry if fields is entry.fields or fields == entry.fields else replace(entry, fields=fields)
    return left


def _capped(entries: Entries) -> Entries:
    updaters = [entry for entry in entries.values() if entry.owner.operation == "Update"]
    if len(updaters) <= MAX_UPDATE_ENTRIES:
        return entries
    oldest = sorted(updaters, key=lambda entry: (entry.time, entry.owner.manager))[: len(updaters) - MAX_UPDATE_ENTRIES + 1]
    kept = {key: entry for key, entry in entries.items() if entry not in oldest}
    for entry in oldest:
        owner = FieldManager(_ANCIENT, "Update", entry.owner.api_version)
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
        raise Conflict(_conflict_message(found), details={"causes": causes})


def _conflict_message(found: list[tuple[str, str]]) -> str:
    if len(found) == 1:
        return f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}"
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(_by_owner(found))


def _by_owner(found: list[tuple[str, str]]) -> Iterator[str]:
    for owner in dict.fromkeys(owner for owner, _ in found):
        yield f"conflicts with {owner}:"
        yield from (f"- {path}" for other, path in found if other == owner)


def is_reset(managed: Any) -> bool:
    """Whether a client resets managedFields, with a single empty entry."""
    return bool(managed == [{}])


def check_config(config: Obj, api_version: str) -> None:
    """Raises BadRequest if an applied configuration has managedFields or another API version."""
    if (config.get("metadata") or {}).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    if config.get("apiVersion") != api_version:
        found = orjson.dumps(config.get("apiVersion") or "").decode().strip('"')
        raise BadRequest(f"Incorrect version specified in apply patch. Specified patch version: {found}, expected: {api_version}")


def fields_to_take_over(manager: str, schema: Schema, live: Obj) -> Fields:
    """The fields that an applier may take over from other managers without a conflict."""
    last = _last_applied(live) if manager == _KUBECTL else None
    if not isinstance(last, dict):
        return {}
    return difference(fields_of(schema, last), changes(schema, last, live).modified)


def _last_applied(live: Obj) -> Any:
    text = annotations_of(live).get(_ANNOTATION)
    try:
        return orjson.loads(text) if text else None
    except ValueError:  # written by hand: as if it were not there
        return None


def update_last_applied(manager: str, live: Obj, applied: Obj, config: Obj) -> Obj:
    """The applied object with an existing annotation updated, so that users can return to client-side apply."""
    if manager != _KUBECTL or _ANNOTATION not in annotations_of(live):
        return applied
    metadata = applied["metadata"]
    text = orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    return {**applied, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), _ANNOTATION: text}}}
