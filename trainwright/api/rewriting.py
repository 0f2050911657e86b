"""What a webhook that reads an object into types and writes it back leaves of it, besides what it meant to change.

Quantities come back in their canonical form, and required fields that were missing as the zero of their type. What would
not come back, empty lists for example, stays: webhooks send no removals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainwright.api.quantities import canonical
from trainwright.api.shapes import ANYTHING, TEXT, Flag, Mapping, Quantity, Record, Sequence, Shape, Text, Whole


def rewrite(shape: Record, value: Any) -> None:
    """Change, in place, a record whose types are right into what types would make of it."""
    for name in shape.required:
        if name not in value:
            value[name] = _zero(shape.fields[name])
    for name in shape.written:
        value.setdefault(name, {})
    fields = shape.fields
    for name, content in value.items():
        inner = fields.get(name)
        if inner is not None and inner is not TEXT and content is not None:
            value[name] = _rewritten(inner, content)


def read_quantities(shape: Shape, value: Any) -> None:
    """Change, in place, quantities into their canonical form, as built-in kinds are stored."""
    if isinstance(value, dict):
        for name, inner in value.items():
            part = _part(shape, name)
            if type(part) is Quantity:
                value[name] = _canonical(inner)
            elif isinstance(inner, dict | list) and _holds_quantities(part):
                read_quantities(part, inner)
    elif isinstance(value, list) and isinstance(shape, Sequence):
        for inner in value:
            read_quantities(shape.item, inner)


_HOLDERS: dict[int, bool] = {}
"""Whether there are quantities in a shape, by its identity: shapes live as long as the program."""


def _holds_quantities(shape: Shape) -> bool:
    known = _HOLDERS.get(id(shape))
    if known is None:
        _HOLDERS[id(shape)] = False  # of a shape within itself
        known = _HOLDERS[id(shape)] = type(shape) is Quantity or any(map(_holds_quantities, _parts(shape)))
    return known


def _parts(shape: Shape) -> Iterable[Shape]:
    match shape:
        case Record():
            return shape.fields.values()
        case Mapping():
            return (shape.value,)
        case Sequence():
            return (shape.item,)
    return ()


def read_nulls(shape: Shape, value: Any) -> None:
    """Change, in place, the nulls of lists into what typed code reads there: empty text, zero, an empty record."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict | list):
                read_nulls(_part(shape, name), inner)
    elif isinstance(value, list):
        item = shape.item if isinstance(shape, Sequence) else shape
        for index, inner in enumerate(value):
            if inner is None:
                value[index] = {} if isinstance(item, Record) else _zero(item)
            elif isinstance(inner, dict | list):
                read_nulls(item, inner)


def _part(shape: Shape, name: str) -> Shape:
    if isinstance(shape, Record):
        return shape.fields.get(name, ANYTHING)
    return shape.value if isinstance(shape, Mapping) else ANYTHING


def _rewritten(shape: Shape, value: Any) -> Any:
    kind = type(shape)
    if kind is Record:
        rewrite(shape, value)  # type: ignore[arg-type]
    elif kind is Sequence and not isinstance(shape.item, Text):  # type: ignore[attr-defined]
        return [_rewritten(shape.item, item) for item in value]  # type: ignore[attr-defined]
    elif kind is Mapping and shape.value is not TEXT:  # type: ignore[attr-defined]
        return {key: _rewritten(shape.value, item) for key, item in value.items()}  # type: ignore[attr-defined]
    elif kind is Quantity:
        return _canonical(value)
    return value


def _canonical(amount: Any) -> Any:
    try:
        return canonical(amount)
    except (ValueError, ArithmeticError):  # an exponent beyond all bounds: left for the rules to judge
        return amount


def _zero(shape: Shape) -> Any:
    match shape:
        case Record():
            zero: dict[str, Any] = {}
            rewrite(shape, zero)
            return zero
        case Whole():
            return 0
        case Flag():
            return False
        case Text():
            return ""
    return None  # a list that is missing is written as null
