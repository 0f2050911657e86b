"""What happens to an object before it is judged: unknown fields go, nulls go, defaults come.

One pass for all three; the unknown fields are told by their paths, since strict clients want them refused.
"""

from __future__ import annotations

from typing import Any

from trainwright.api.objects import Obj
from trainwright.api.paths import child, element
from trainwright.api.shapes import Anything, Mapping, Record, Sequence, Shape, Text

_NOTHING = Record()


Unknown = tuple[str, tuple[str, ...]]
"""The path of an unknown field, and the fields that are known in its place."""


def settled(shape: Record, obj: Obj, path: str = "") -> tuple[Obj, list[Unknown]]:
    """`obj` as a new object with what the schema knows and its defaults, and the fields that it does not know.

    Nulls go, but for those in maps of texts of built-in kinds, which `typed_nulls` has read before.
    """
    unknown: list[Unknown] = []
    return _record(shape, obj, path, unknown), unknown


def _value(shape: Shape, value: Any, path: str, unknown: list[Unknown]) -> Any:
    kind = type(shape)
    if kind is Anything:
        return value
    if isinstance(value, dict):
        if kind is Mapping:
            return _mapping(shape.value, value, path, unknown)  # type: ignore[attr-defined]
        # A map where the schema has none, an array say, has no field that is known.
        return _record(shape if kind is Record else _NOTHING, value, path, unknown)  # type: ignore[arg-type]
    if isinstance(value, list):
        # Elements of a list where the schema has none are judged as if nothing were known of them.
        item = shape.item if kind is Sequence else _NOTHING  # type: ignore[attr-defined]
        if not isinstance(item, Record | Mapping | Sequence):
            return value
        return [_value(item, inner, element(path, index), unknown) for index, inner in enumerate(value)]
    return value


def _record(shape: Record, value: Obj, path: str, unknown: list[Unknown]) -> Obj:
    fields, kept = shape.fields, {}
    for name, inner in value.items():
        known = fields.get(name)
        if known is None:
            if shape.open:
                kept[name] = inner
            else:
                unknown.append((child(path, name), tuple(fields)))
        elif inner is not None:
            kept[name] = _value(known, inner, child(path, name), unknown) if isinstance(inner, dict | list) else inner
    for name, default in _defaults(shape):
        if name not in kept:
            kept[name] = default
    return kept


def _mapping(shape: Shape, value: Obj, path: str, unknown: list[Unknown]) -> Obj:
    return {key: _value(shape, inner, child(path, key), unknown) for key, inner in value.items() if inner is not None}


_DEFAULTS: dict[int, tuple[tuple[str, Any], ...]] = {}
"""The fields of a record that have a default, by the record's identity: shapes live as long as the program."""


def _defaults(shape: Record) -> tuple[tuple[str, Any], ...]:
    found = _DEFAULTS.get(id(shape))
    if found is None:
        found = tuple((name, inner.default) for name, inner in shape.fields.items() if inner.default is not None)
        _DEFAULTS[id(shape)] = found
    return found


def typed_nulls(shape: Shape, value: Any) -> Any:
    """`value` as a new value in which the nulls of maps of texts are empty texts, as code with types reads them."""
    if isinstance(shape, Mapping) and isinstance(value, dict) and isinstance(shape.value, Text):
        return {key: "" if inner is None else inner for key, inner in value.items()}
    if isinstance(shape, Record) and isinstance(value, dict):
        return {
            key: typed_nulls(shape.fields.get(key, _NOTHING), inner) if isinstance(inner, dict) else inner
            for key, inner in value.items()
        }
    return value
