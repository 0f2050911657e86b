"""What happens to an object before validation: unknown fields and nulls are pruned, defaults are set.

One pass for all three; it returns the paths of unknown fields, which strict clients want rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.objects import Obj, copy_of
from trainwright.api.paths import child, element
from trainwright.api.schema.types import STRING, AnyValue, ListOf, MapOf, Schema, String, Struct

_NOTHING = Struct()
_CONTAINERS, _WITH_PARTS = (dict, list), (Struct, MapOf, ListOf)


Unknown = tuple[str, tuple[str, ...]]
"""The path of an unknown field, and the known fields at that place."""


def apply_defaults(schema: Struct, obj: Obj, path: str = "") -> tuple[Obj, list[Unknown]]:
    """Return `obj` as a new object, pruned and with defaults, and its unknown fields.

    The two objects share no mutable value. Nulls are pruned, except in string maps of built-in kinds, which `typed_nulls`
    has converted before.
    """
    dropped: list[str] = []
    own = _record(schema, obj, dropped)
    # Most objects have no unknown field; build paths only for the others.
    return own, list(_strange(schema, obj, path)) if dropped else []


def _value(schema: Schema, value: Any, dropped: list[str]) -> Any:
    kind = type(schema)
    if kind is AnyValue:
        return copy_of(value) if type(value) in _CONTAINERS else value
    if type(value) is dict:
        if kind is MapOf:
            return _mapping(schema.value, value, dropped)  # type: ignore[attr-defined]
        # In a map where the schema has another type, all fields are unknown.
        return _record(schema if kind is Struct else _NOTHING, value, dropped)  # type: ignore[arg-type]
    if type(value) is list:
        item = _item(schema)
        return [_value(item, inner, dropped) for inner in value] if type(item) in _WITH_PARTS else copy_of(value)
    return value


def _record(schema: Struct, value: Obj, dropped: list[str]) -> Obj:
    fields, kept = schema.fields, {}
    for name, inner in value.items():
        known = fields.get(name)
        if known is None:
            if schema.open:
                kept[name] = copy_of(inner) if type(inner) in _CONTAINERS else inner
            else:
                dropped.append(name)
        elif inner is not None:
            kept[name] = _value(known, inner, dropped) if type(inner) in _CONTAINERS else inner
    for name, default in _defaults(schema):
        if name not in kept:
            kept[name] = default
    return kept


def _mapping(schema: Schema, value: Obj, dropped: list[str]) -> Obj:
    if schema is STRING and all(type(inner) is str for inner in value.values()):
        return dict(value)
    return {key: _value(schema, inner, dropped) for key, inner in value.items() if inner is not None}


def _item(schema: Schema) -> Schema:
    """The schema of a list's elements; an empty struct where the schema has no list."""
    return schema.item if isinstance(schema, ListOf) else _NOTHING


def _strange(schema: Schema, value: Any, path: str) -> Iterator[Unknown]:
    """The fields that `apply_defaults` prunes, in document order."""
    if isinstance(schema, AnyValue):
        return
    if isinstance(value, list):
        for index, inner in enumerate(value if type(_item(schema)) in _WITH_PARTS else ()):
            yield from _strange(_item(schema), inner, element(path, index))
    elif isinstance(value, dict) and isinstance(schema, MapOf):
        for key, inner in value.items():
            yield from _strange(schema.value, inner, child(path, key))
    elif isinstance(value, dict):
        record = schema if isinstance(schema, Struct) else _NOTHING
        for name, inner in value.items():
            if name in record.fields:
                yield from _strange(record.fields[name], inner, child(path, name))
            elif not record.open:
                yield child(path, name), tuple(record.fields)


_DEFAULTS: dict[int, tuple[tuple[str, Any], ...]] = {}
"""The fields of a struct that have a default, cached by identity: schemas live as long as the program."""


def _defaults(schema: Struct) -> tuple[tuple[str, Any], ...]:
    found = _DEFAULTS.get(id(schema))
    if found is None:
        found = tuple((name, inner.default) for name, inner in schema.fields.items() if inner.default is not None)
        _DEFAULTS[id(schema)] = found
    return found


def typed_nulls(schema: Schema, value: Any) -> Any:
    """`value` as a new value in which nulls of string maps are empty strings, as typed code decodes them."""
    if isinstance(schema, MapOf) and isinstance(value, dict) and isinstance(schema.value, String):
        return {key: "" if inner is None else inner for key, inner in value.items()}
    if isinstance(schema, Struct) and isinstance(value, dict):
        return {
            key: typed_nulls(schema.fields.get(key, _NOTHING), inner) if isinstance(inner, dict) else inner
            for key, inner in value.items()
        }
    return value
