"""Side effects of a webhook that decodes an object into types and encodes it again.

Quantities become canonical, and missing required fields become the zero value of their type. Values that encoding would omit,
empty lists for example, stay: webhooks send no removals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainwright.api.quantities import canonical
from trainwright.api.schema.types import STRING, Boolean, Integer, ListOf, MapOf, Quantity, Schema, String, Struct, part_of


def rewrite(schema: Struct, value: Any) -> None:
    """Change, in place, a struct with valid types into its decoded and encoded form."""
    for name in schema.required:
        if name not in value:
            value[name] = _zero(schema.fields[name])
    for name in schema.written:
        value.setdefault(name, {})
    fields = schema.fields
    for name, content in value.items():
        inner = fields.get(name)
        if inner is not None and inner is not STRING and content is not None:
            value[name] = _rewritten(inner, content)


def read_quantities(schema: Schema, value: Any) -> None:
    """Canonicalize quantities in place, as built-in kinds are stored."""
    if isinstance(value, dict):
        for name, inner in value.items():
            part = part_of(schema, name)
            if type(part) is Quantity:
                value[name] = _canonical(inner)
            elif isinstance(inner, dict | list) and _holds_quantities(part):
                read_quantities(part, inner)
    elif isinstance(value, list) and isinstance(schema, ListOf):
        for inner in value:
            read_quantities(schema.item, inner)


_HOLDERS: dict[int, bool] = {}
"""Whether a schema contains quantities, cached by identity: schemas live as long as the program."""


def _holds_quantities(schema: Schema) -> bool:
    known = _HOLDERS.get(id(schema))
    if known is None:
        _HOLDERS[id(schema)] = False  # for recursive schemas
        known = _HOLDERS[id(schema)] = type(schema) is Quantity or any(map(_holds_quantities, _parts(schema)))
    return known


def _parts(schema: Schema) -> Iterable[Schema]:
    match schema:
        case Struct():
            return schema.fields.values()
        case MapOf():
            return (schema.value,)
        case ListOf():
            return (schema.item,)
    return ()


def read_nulls(schema: Schema, value: Any) -> None:
    """Replace, in place, nulls in lists by what typed code decodes: an empty string, zero, an empty struct."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list):
                read_nulls(part_of(schema, name), inner)
    elif isinstance(value, list):
        item = schema.item if isinstance(schema, ListOf) else schema
        for index, inner in enumerate(value):
            if inner is None:
                value[index] = {} if isinstance(item, Struct) else _zero(item)
            elif isinstance(inner, dict | list):
                read_nulls(item, inner)


def _rewritten(schema: Schema, value: Any) -> Any:
    kind = type(schema)
    if kind is Struct:
        rewrite(schema, value)  # type: ignore[arg-type]
    elif kind is ListOf and not isinstance(schema.item, String):  # type: ignore[attr-defined]
        return [_rewritten(schema.item, item) for item in value]  # type: ignore[attr-defined]
    elif kind is MapOf and schema.value is not STRING:  # type: ignore[attr-defined]
        return {key: _rewritten(schema.value, item) for key, item in value.items()}  # type: ignore[attr-defined]
    elif kind is Quantity:
        return _canonical(value)
    return value


def _canonical(amount: Any) -> Any:
    try:
        return canonical(amount)
    except (ValueError, ArithmeticError):  # an exponent out of bounds: the rules report it
        return amount


def _zero(schema: Schema) -> Any:
    match schema:
        case Struct():
            zero: dict[str, Any] = {}
            rewrite(schema, zero)
            return zero
        case Integer():
            return 0
        case Boolean():
            return False
        case String():
            return ""
    return None  # a list that is missing is written as null
