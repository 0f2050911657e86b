"""What ownership asks of an object and its shape: which fields it sets, which differ from another's, how two become one.

Lists with keys and sets are taken apart, maps too; other lists, and what its shape calls atomic, count as one value. Where no
shape is known lists are atomic and maps are not. The rules are those of server-side apply.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson

from trainwright.api.shapes import ANYTHING, Mapping, Record, Sequence, Shape
from trainwright.controlplane.apiserver.fields import MEMBER, Fields, as_member, is_member


@dataclass
class Changes:
    """How one object differs from another, as sets of fields."""

    added: Fields = field(default_factory=dict)
    modified: Fields = field(default_factory=dict)
    removed: Fields = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)


def fields_of(shape: Shape, value: Any) -> Fields:
    """The fields that a configuration sets: its leaves, the elements of its lists and the keys of its free maps."""
    return _set_by(shape, value) or {}


def changes(shape: Shape, old: Any, new: Any) -> Changes:
    """What is different in `new`."""
    found = Changes()
    if old != new:
        _compare(shape, old, new, found)
    return found


def added(shape: Shape, blank: Any, new: Any) -> Fields:
    """What a new object says beyond `blank`, whose maps are empty: as `changes` finds it, added and modified together."""
    if isinstance(new, list):
        return {element_of(shape, item): _added(shape.item, item) for item in new} if isinstance(shape, Sequence) else {}
    found: Fields = {}
    for key, value in new.items():
        part = _part(shape, key)
        if key not in blank:
            found[f"f:{key}"] = _added(part, value)
        elif value and isinstance(value, (dict, list)) and not _is_whole(part, value):
            if node := added(part, blank[key] or {}, value):
                found[f"f:{key}"] = node
        elif value != blank[key]:
            found[f"f:{key}"] = {}
    return found


def merged(shape: Shape, live: Any, config: Any) -> Any:
    """`live` with everything that `config` sets, as a new value; parts may be shared."""
    if isinstance(config, dict) and isinstance(live, dict) and not _is_atomic(shape) and (config or live):
        both = dict(live)
        for key, value in config.items():
            both[key] = merged(_part(shape, key), live[key], value) if key in live else value
        return both
    if isinstance(shape, Sequence) and _is_taken_apart(shape) and isinstance(live, list) and (live or config):
        return _merged_lists(shape, live, config or [])
    return live if config is None and isinstance(live, dict | list) and live and not _is_whole(shape, live) else config


def pruned(shape: Shape, value: Any, last: Fields, kept: Fields) -> Any:
    """`value` without what is in `last` and no longer in `kept`, as a new value; what it leaves empty goes too."""
    if isinstance(value, dict):
        return {key: left for key, inner in value.items() if (left := _left_of_field(shape, key, inner, last, kept)) is not None}
    if isinstance(value, list) and isinstance(shape, Sequence) and _is_taken_apart(shape):
        return [left for item in value if (left := _left_of_item(shape, item, last, kept)) is not None]
    return value


def _left_of_field(shape: Shape, key: str, value: Any, last: Fields, kept: Fields) -> Any:
    element = f"f:{key}"
    before = last.get(element)
    if before is None:
        return value
    now = kept.get(element)
    named = isinstance(shape, Record) and key in shape.fields
    if (named or is_member(before)) and (now is None or not (named or is_member(now))):
        return None
    if not isinstance(value, dict | list) or not value:
        return value
    return pruned(_part(shape, key), value, before, now or {}) or None


def _left_of_item(shape: Sequence, item: Any, last: Fields, kept: Fields) -> Any:
    element = element_of(shape, item)
    before = last.get(element)
    if before is None:
        return item
    now = kept.get(element)
    if is_member(before) and (now is None or not is_member(now)):
        return None
    return pruned(shape.item, item, before, now or {})


def _set_by(shape: Shape, value: Any) -> Fields | None:
    """The node of a value: None where it sets nothing."""
    if isinstance(value, dict) and not _is_atomic(shape):
        found = {}
        for key, inner in value.items():
            node = {} if inner is None or inner == {} else _set_by(_part(shape, key), inner)
            if not (isinstance(shape, Record) and key in shape.fields):
                node = as_member(node)
            if node is not None:
                found[f"f:{key}"] = node
        return found or None
    if isinstance(value, list) and isinstance(shape, Sequence) and _is_taken_apart(shape):
        return {element_of(shape, item): as_member(_set_by(shape.item, item)) for item in value} or None
    return {}


def _whole(shape: Shape, value: Any) -> Fields:
    """The node of a value that is there on one side only."""
    if not value or not isinstance(value, dict | list):
        return {}
    if isinstance(value, dict) and not _is_atomic(shape):
        node: Fields = {f"f:{key}": _whole(_part(shape, key), inner) if inner else {} for key, inner in value.items()}
        node[MEMBER] = {}
        return node
    if isinstance(value, list) and isinstance(shape, Sequence) and _is_taken_apart(shape):
        node = {element_of(shape, item): _whole(shape.item, item) for item in value}
        node[MEMBER] = {}
        return node
    return {}


def _compare(shape: Shape, old: Any, new: Any, found: Changes) -> bool:
    """Enter what is different below this point; whether the value counts as modified itself."""
    if _are_maps(shape, old, new):
        _compare_parts(shape, {f"f:{key}": inner for key, inner in (old or {}).items()}, _by_field(new), found)
        return False
    if isinstance(shape, Sequence) and _is_taken_apart(shape) and (old or new):
        before = {element_of(shape, item): item for item in old or []}
        _compare_parts(shape, before, {element_of(shape, item): item for item in new or []}, found)
        return False
    return True


def _are_maps(shape: Shape, old: Any, new: Any) -> bool:
    sides = (isinstance(old, dict) or old is None) and (isinstance(new, dict) or new is None)
    return sides and bool(old or new) and not _is_atomic(shape)


def _by_field(value: Any) -> Fields:
    return {f"f:{key}": inner for key, inner in (value or {}).items()}


def _compare_parts(shape: Shape, old: Fields, new: Fields, found: Changes) -> None:
    for element, value in new.items():
        if element not in old:
            found.added[element] = _added(_below(shape, element), value)
        elif old[element] != value:
            inner = Changes()
            if _compare(_below(shape, element), old[element], value, inner):
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
            found.removed[element] = _whole(_below(shape, element), value)


_REMEMBERED: dict[tuple[int, bytes], Fields] = {}
_MOST_REMEMBERED = 4096


def _added(shape: Shape, value: Any) -> Fields:
    """As `_whole`, remembered: what a controller creates is often, container by container, what it created before.

    By the shape's identity, since shapes live as long as the program; sets of fields are never changed.
    """
    if not value or not isinstance(value, dict | list):
        return {}
    key = (id(shape), orjson.dumps(value))
    known = _REMEMBERED.get(key)
    if known is None:
        if len(_REMEMBERED) >= _MOST_REMEMBERED:
            _REMEMBERED.clear()
        known = _REMEMBERED[key] = _whole(shape, value)
    return known


def _below(shape: Shape, element: str) -> Shape:
    return shape.item if isinstance(shape, Sequence) else _part(shape, element[2:])


def _part(shape: Shape, key: str) -> Shape:
    if isinstance(shape, Record):
        return shape.fields.get(key, ANYTHING)
    return shape.value if isinstance(shape, Mapping) else ANYTHING


def _is_atomic(shape: Shape) -> bool:
    return isinstance(shape, Record | Mapping) and shape.atomic


def _is_taken_apart(shape: Sequence) -> bool:
    return bool(shape.keys) or shape.distinct


def _is_whole(shape: Shape, value: Any) -> bool:
    """Whether a map or list counts as one value."""
    if isinstance(value, dict):
        return _is_atomic(shape)
    return not (isinstance(shape, Sequence) and _is_taken_apart(shape))


def element_of(shape: Sequence, item: Any) -> str:
    """The path element of an item; keys that it leaves out have their default."""
    if not shape.keys or not isinstance(item, dict):
        return f"v:{orjson.dumps(item).decode()}"
    known = shape.item.fields if isinstance(shape.item, Record) else {}
    key = {}
    for name in shape.keys:
        value = item.get(name)
        if value is None:
            value = known[name].default if name in known else None
        key[name] = value
    return f"k:{orjson.dumps(key, option=orjson.OPT_SORT_KEYS).decode()}"


def _merged_lists(shape: Sequence, live: list[Any], config: list[Any]) -> list[Any]:
    """The elements of both in the order of `config`; those that only `live` has stay before the common one that they preceded."""
    present = {element_of(shape, item): item for item in live}
    wanted = {element_of(shape, item): item for item in config}
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
        result.append(merged(shape.item, present[element], item) if element in present else item)
    return [*result, *(present[element] for element in rest if element not in wanted)]
