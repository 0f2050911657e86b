"""Strategic merge patch: lists with a merge key in their schema merge by it, other lists are replaced.

Merge keys are the whole difference from a JSON merge patch; the order of a merged list follows kubectl.
Directives: `$patch` (merge, replace, delete), `$retainKeys`, `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

from trainwright.api.schema.types import ListOf, Schema, part_of

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"
Map = dict[str, Any]


class BadDirective(ValueError):
    """A directive has a value of the wrong type."""


def strategic_merge(original: Any, patch: Any, schema: Schema) -> Any:
    """Return `original`, a value of `schema`, with `patch` applied; parts that the patch does not mention are shared with `original`.

    Null deletes. Raises BadDirective; ValueError for an unknown directive, or an element of a keyed list without its key.
    """
    if not isinstance(patch, dict):
        return patch
    return _merge_maps(original if isinstance(original, dict) else {}, patch, schema)


def _merge_maps(original: Map, patch: Map, schema: Schema) -> Map:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise ValueError(f"unknown patch type: {directive} in map: {in_go(patch)}")
    merged = _retained(original, patch)
    for key, value in patch.items():
        if key.startswith(_REMOVE):
            field, unwanted = key.removeprefix(_REMOVE), _Places(_list_of(value, "primitive list"))
            merged[field] = [item for item in _list_at(merged, field) if item not in unwanted]
        elif not key.startswith("$"):
            _merge_field(merged, key, value, part_of(schema, key), _order_of(patch, key))
    for key, order in patch.items():
        if key.startswith(_ORDER) and key.removeprefix(_ORDER) not in patch:
            field = key.removeprefix(_ORDER)
            _reorder(merged, field, _list_of(order, "setElementOrder list"), part_of(schema, field))
    return merged


def _retained(original: Map, patch: Map) -> Map:
    if patch.get(_RETAIN) is None:
        return dict(original)
    retained = _Places(_list_of(patch[_RETAIN], "retainKeys"))
    if extra := [key for key in patch if not key.startswith("$") and key not in retained]:
        raise ValueError(f"$retainKeys: the patch sets {', '.join(map(repr, extra))}, which it does not retain")
    return {k: v for k, v in original.items() if k in retained}


def _merge_field(merged: Map, key: str, value: Any, schema: Schema, order: list[Any] | None) -> None:
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict):
        current = merged.get(key)
        merged[key] = _merge_maps(current if isinstance(current, dict) else {}, value, schema)
    elif not isinstance(value, list) or not isinstance(schema, ListOf) or schema.merge_key is None:
        merged[key] = value
    elif not schema.merge_key:
        before = _list_at(merged, key)
        known = _Places(before)
        merged[key] = _ordered([*before, *(v for v in value if v not in known)], before, order or value, lambda item: item)
    elif all(isinstance(item, dict) for item in value):
        merged[key] = _merge_lists(_list_at(merged, key), value, schema.merge_key, schema.item, order)
    else:
        merged[key] = value


def _reorder(merged: Map, field: str, order: list[Any], schema: Schema) -> None:
    """Apply `$setElementOrder` of a list that the patch does not change otherwise."""
    key = schema.merge_key if isinstance(schema, ListOf) else None
    items = merged.get(field)
    if not isinstance(items, list):
        return
    if not key:
        merged[field] = _ordered(items, items, order, lambda item: item)
    else:
        merged[field] = _ordered(items, items, [_identity(item, key) for item in order], lambda item: _value(item, key))


def _merge_lists(original: list[Any], patch: list[Any], key: str, item_schema: Schema, order: list[Any] | None) -> list[Any]:
    for item in patch:
        if item.get(_DIRECTIVE) not in (None, "merge", "replace", "delete"):
            raise ValueError(f"unknown patch type: {item[_DIRECTIVE]} in map: {in_go(item)}")
    changes = [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    if len(changes) < len(patch):  # the directive is not an element
        return [item for item in changes if item.get(_DIRECTIVE) is None]
    wanted = [_identity(item, key) for item in changes]
    deleted = _Places([value for item, value in zip(changes, wanted, strict=True) if item.get(_DIRECTIVE) == "delete"])
    changes = [item for item in changes if item.get(_DIRECTIVE) != "delete"]
    merged = [item for item in original if _value(item, key) not in deleted]
    present = _Places([_value(item, key) for item in merged])
    for item in changes:
        position = present.first(item[key])
        if position is None:
            present.add(item[key])
            merged.append(_merge_maps({}, item, item_schema))
        else:
            merged[position] = _merge_maps(merged[position], item, item_schema)
    ordering = [_identity(item, key) for item in (changes if order is None else order)]
    return _ordered(merged, original, ordering, lambda item: _value(item, key))


def _value(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None


def _identity(item: Map, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:
        raise ValueError(f"map: {in_go(item)} does not contain declared merge key: {key}")
    return item[key]


def in_go(value: Any) -> str:
    """A value as Go prints it in error messages."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{in_go(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(in_go, value))}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ordered(merged: list[Any], original: list[Any], ordering: list[Any], identity: Callable[[Any], Any]) -> list[Any]:
    """A merged list in its final order: that of `ordering`, with unchanged elements before those that they preceded.

    An unchanged element comes first only if both heads existed before and it came earlier; new elements come before
    the remaining unchanged ones, as in kubectl.
    """
    known, places = _Places([identity(item) for item in original]), _Places(ordering)
    chosen = [(places.first(identity(item)), item) for item in merged]
    patched = deque(item for _, item in sorted(((at, item) for at, item in chosen if at is not None), key=lambda pair: pair[0]))
    server_only = deque(item for at, item in chosen if at is None)
    result: list[Any] = []
    while patched and server_only:
        head, other = known.first(identity(patched[0])), known.first(identity(server_only[0]))
        earlier = head is not None and other is not None and other < head
        result.append((server_only if earlier else patched).popleft())
    return [*result, *patched, *server_only]


class _Places:
    """Positions of values in a list, in constant time, for values of any type."""

    def __init__(self, values: list[Any]):
        self._first: dict[Any, int] = {}
        self._count = 0
        for value in values:
            self.add(value)

    def __contains__(self, value: Any) -> bool:
        return _hashable(value) in self._first

    def first(self, value: Any) -> int | None:
        return self._first.get(_hashable(value))

    def add(self, value: Any) -> None:
        self._first.setdefault(_hashable(value), self._count)
        self._count += 1


def _hashable(value: Any) -> Any:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if isinstance(value, dict | list) else value


def _list_at(holder: Map, field: str) -> list[Any]:
    found = holder.get(field)
    return found if isinstance(found, list) else []


def _order_of(patch: Map, field: str) -> list[Any] | None:
    order = patch.get(_ORDER + field)
    return None if order is None else _list_of(order, "setElementOrder list")


def _list_of(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadDirective(f"invalid patch format of {what}")
    return value
