"""Computes and merges field sets by schema: the fields that an object sets, and the differences between two objects.

Maps, keyed lists and sets are granular; other lists and values marked atomic in the schema count as one value. Without a schema lists
are atomic and maps are granular. These are the rules of server-side apply. Applied configurations are validated against the schema,
with the error messages of structured-merge-diff.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from trainwright.api.patching.strategic_merge import in_go
from trainwright.api.schema.types import ListOf, MapOf, Schema, String, Struct, part_of
from trainwright.controlplane.apiserver.managed_fields.field_set import MEMBER, Fields, as_member, is_member, shown


@dataclass
class Changes:
    """The differences between two objects as field sets."""

    added: Fields = field(default_factory=dict)
    modified: Fields = field(default_factory=dict)
    removed: Fields = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)


def fields_of(schema: Schema, value: Any) -> Fields:
    """The field set of a configuration: its leaves, list elements and the keys of free-form maps."""
    return _set_by(schema, value) or {}


def _set_by(schema: Schema, value: Any) -> Fields | None:
    """The field set of a value; None if it sets nothing."""
    if isinstance(value, dict) and not _is_atomic(schema):
        found = {}
        for key, inner in value.items():
            node = {} if inner is None or inner == {} else _set_by(part_of(schema, key), inner)
            if not (isinstance(schema, Struct) and key in schema.fields):
                node = as_member(node)
            if node is not None:
                found[f"f:{key}"] = node
        return found or None
    if isinstance(value, list) and isinstance(schema, ListOf) and _is_taken_apart(schema):
        return {element_of(schema, item): as_member(_set_by(schema.item, item)) for item in value} or None
    return {}


def _is_atomic(schema: Schema) -> bool:
    return isinstance(schema, Struct | MapOf) and schema.atomic


def _is_taken_apart(schema: ListOf) -> bool:
    return bool(schema.keys) or schema.distinct


def changes(schema: Schema, old: Any, new: Any) -> Changes:
    """The differences of `new` from `old`."""
    found = Changes()
    if old != new:
        _compare(schema, old, new, found)
    return found


def _compare(schema: Schema, old: Any, new: Any, found: Changes) -> bool:
    """Record the differences below a value; returns whether the value itself counts as modified."""
    if _are_maps(schema, old, new):
        _compare_parts(schema, {f"f:{key}": inner for key, inner in (old or {}).items()}, _by_field(new), found)
        return False
    if isinstance(schema, ListOf) and _is_taken_apart(schema) and (old or new):
        before = {element_of(schema, item): item for item in old or []}
        _compare_parts(schema, before, {element_of(schema, item): item for item in new or []}, found)
        return False
    return True


def _are_maps(schema: Schema, old: Any, new: Any) -> bool:
    sides = (isinstance(old, dict) or old is None) and (isinstance(new, dict) or new is None)
    return sides and bool(old or new) and not _is_atomic(schema)


def _compare_parts(schema: Schema, old: Fields, new: Fields, found: Changes) -> None:
    for element, value in new.items():
        if element not in old:
            found.added[element] = _added(_below(schema, element), value)
        elif old[element] != value:
            inner = Changes()
            if _compare(_below(schema, element), old[element], value, inner):
                found.modified[element] = {}
            for mine, theirs in (
                (found.added, inner.added),
                (found.modified, inner.modified),
                (found.removed, inner.removed),
            ):
                if theirs:
                    mine[element] = theirs
    for element, value in old.items():
        if element not in new:
            found.removed[element] = _whole(_below(schema, element), value)


def _added(schema: Schema, value: Any) -> Fields:
    """Cached `_whole`: controllers often create objects with identical containers.

    Field sets are immutable, so they can be shared.
    """
    if not value or not isinstance(value, dict | list):
        return {}
    return _remembered.get(schema, value)


def _below(schema: Schema, element: str) -> Schema:
    return schema.item if isinstance(schema, ListOf) else part_of(schema, element[2:])


def _whole(schema: Schema, value: Any) -> Fields:
    """The field set of a value that only one of two objects has."""
    if not value or not isinstance(value, dict | list):
        return {}
    if isinstance(value, dict) and not _is_atomic(schema):
        node: Fields = {f"f:{key}": _whole(part_of(schema, key), inner) if inner else {} for key, inner in value.items()}
        node[MEMBER] = {}
        return node
    if isinstance(value, list) and isinstance(schema, ListOf) and _is_taken_apart(schema):
        node = {element_of(schema, item): _whole(schema.item, item) for item in value}
        node[MEMBER] = {}
        return node
    return {}


def _by_field(value: Any) -> Fields:
    return {f"f:{key}": inner for key, inner in (value or {}).items()}


def added(schema: Schema, blank: Any, new: Any) -> Fields:
    """The added and modified fields of `changes(schema, blank, new)`, computed faster because the maps of `blank` are empty."""
    if isinstance(new, list):
        return {element_of(schema, item): _added(schema.item, item) for item in new} if isinstance(schema, ListOf) else {}
    found: Fields = {}
    for key, value in new.items():
        part = part_of(schema, key)
        if key not in blank:
            found[f"f:{key}"] = _added(part, value)
        elif value and isinstance(value, (dict, list)) and not _is_whole(part, value):
            if node := added(part, blank[key] or {}, value):
                found[f"f:{key}"] = node
        elif value != blank[key]:
            found[f"f:{key}"] = {}
    return found


def _is_whole(schema: Schema, value: Any) -> bool:
    """Whether a map or list is atomic."""
    if isinstance(value, dict):
        return _is_atomic(schema)
    return not (isinstance(schema, ListOf) and _is_taken_apart(schema))


def merged(schema: Schema, live: Any, config: Any) -> Any:
    """`live` with all fields of `config` set, as a new value that may share parts with both."""
    if isinstance(config, dict) and isinstance(live, dict) and not _is_atomic(schema) and (config or live):
        both = dict(live)
        for key, value in config.items():
            both[key] = merged(part_of(schema, key), live[key], value) if key in live else value
        return both
    if isinstance(schema, ListOf) and _is_taken_apart(schema) and isinstance(live, list) and (live or config):
        return _merged_lists(schema, live, config or [])
    return live if config is None and isinstance(live, dict | list) and live and not _is_whole(schema, live) else config


def _merged_lists(schema: ListOf, live: list[Any], config: list[Any]) -> list[Any]:
    """The elements of both lists in the order of `config`; those only in `live` stay before the common element they preceded."""
    present = {element_of(schema, item): item for item in live}
    wanted = {element_of(schema, item): item for item in config}
    rest, result = deque(present), []
    shared = deque(element for element in wanted if element in present)
    for element, item in wanted.items():
        while rest and not (shared and rest[0] == shared[0]):
            other = rest.popleft()
            if other not in wanted:
                result.append(present[other])
        if shared and shared[0] == element:
            shared.popleft()
            if rest and rest[0] == element:
                rest.popleft()
        result.append(merged(schema.item, present[element], item) if element in present else item)
    return [*result, *(present[element] for element in rest if element not in wanted)]


def pruned(schema: Schema, value: Any, last: Fields, kept: Fields) -> Any:
    """`value` without the fields in `last` that are not in `kept`, as a new value; containers left empty are removed."""
    if isinstance(value, dict):
        return {key: left for key, inner in value.items() if (left := _left_of_field(schema, key, inner, last, kept)) is not None}
    if isinstance(value, list) and isinstance(schema, ListOf) and _is_taken_apart(schema):
        return [left for item in value if (left := _left_of_item(schema, item, last, kept)) is not None]
    return value


def _left_of_field(schema: Schema, key: str, value: Any, last: Fields, kept: Fields) -> Any:
    element = f"f:{key}"
    before = last.get(element)
    if before is None:
        return value
    now = kept.get(element)
    named = isinstance(schema, Struct) and key in schema.fields
    if (named or is_member(before)) and (now is None or not (named or is_member(now))):
        return None
    if not isinstance(value, dict | list) or not value:
        return value
    return pruned(part_of(schema, key), value, before, now or {}) or None


def _left_of_item(schema: ListOf, item: Any, last: Fields, kept: Fields) -> Any:
    element = element_of(schema, item)
    before = last.get(element)
    if before is None:
        return item
    now = kept.get(element)
    if is_member(before) and (now is None or not is_member(now)):
        return None
    return pruned(schema.item, item, before, now or {})


def element_of(schema: ListOf, item: Any) -> str:
    """The path element of a list item; missing keys take their defaults."""
    if not schema.keys or not isinstance(item, dict):
        return f"v:{orjson.dumps(item).decode()}"
    known = schema.item.fields if isinstance(schema.item, Struct) else {}
    key = {}
    for name in schema.keys:
        value = item.get(name)
        if value is None:
            value = known[name].default if name in known else None
        key[name] = value
    return f"k:{orjson.dumps(key, option=orjson.OPT_SORT_KEYS).decode()}"


def configuration_errors(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """All errors of a configuration, each prefixed with its path."""
    if isinstance(schema, Struct) and isinstance(value, dict):
        for key, inner in value.items():
            if key in schema.fields:
                yield from configuration_errors(schema.fields[key], inner, f"{path}.{key}")
            elif not schema.open:
                yield f"{path}.{key}: field not declared in schema"
    elif isinstance(schema, MapOf) and isinstance(value, dict):
        for key, inner in value.items():
            yield from configuration_errors(schema.value, inner, f"{path}.{key}")
    elif isinstance(schema, ListOf) and isinstance(value, list):
        yield from (_elements if schema.keys else _items)(schema, value, path)
    elif isinstance(schema, String) and isinstance(value, int | float):
        printed = str(value).lower() if isinstance(value, bool) else value
        yield f"{path}: expected string, got &value.valueUnstructured{{Value:{printed}}}"
    elif value is not None and isinstance(schema, Struct | MapOf | ListOf):
        yield f"{path}: expected {'list' if isinstance(schema, ListOf) else 'map'}, got &{{{in_go(value)}}}"


def _elements(schema: ListOf, items: list[Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    known = schema.item.fields if isinstance(schema.item, Struct) else {}
    for index, item in enumerate(items):
        given = item if isinstance(item, dict) else {}
        missing = [key for key in schema.keys if given.get(key) is None and (key not in known or known[key].default is None)]
        if missing:
            why = f'associative list with keys has an element that omits key field "{missing[0]}"'
            yield f"{path}: element {index}: {why} (and doesn't have default value)"
            continue
        name = shown((element_of(schema, item),))
        if name in seen:
            yield f"{path}: duplicate entries for key {name}"
        seen.add(name)
        yield from configuration_errors(schema.item, item, path + name)


def _items(schema: ListOf, items: list[Any], path: str) -> Iterator[str]:
    for index, item in enumerate(items):
        yield from configuration_errors(schema.item, item, f"{path}[{index}]")


class _Remembered:
    """Field sets by schema and value, bounded by the JSON bytes of the values; starts anew when it is full.

    Field sets of small maps take ten times the memory of their JSON. Large values are seldom repeated.
    """

    most_bytes, largest = 2 * 1024 * 1024, 16 * 1024

    def __init__(self) -> None:
        self._fields: dict[tuple[int, bytes], Fields] = {}
        self._bytes = 0

    def get(self, schema: Schema, value: Any) -> Fields:
        # The id identifies a schema, because schemas live as long as the process.
        key = (id(schema), orjson.dumps(value))
        known = self._fields.get(key)
        if known is None:
            known, size = _whole(schema, value), len(key[1])
            if size <= self.largest:
                if self._bytes + size > self.most_bytes:
                    self._fields.clear()
                    self._bytes = 0
                self._fields[key] = known
                self._bytes += size
        return known


_remembered = _Remembered()
