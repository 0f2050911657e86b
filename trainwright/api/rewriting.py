"""What a webhook that reads an object into types and writes it back leaves of it, besides what it meant to change.

Quantities come back in their canonical form, and required fields that were missing as the zero of their type. What would
not come back, empty lists for example, stays: webhooks send no removals.
"""

from __future__ import annotations

from typing import Any

from trainwright.api.quantities import canonical
from trainwright.api.shapes import Flag, Mapping, Quantity, Record, Sequence, Shape, Text, Whole


def rewrite(shape: Record, value: Any) -> None:
    """Change, in place, a record whose types are right into what types would make of it."""
    for name in shape.required:
        if name not in value:
            value[name] = _zero(shape.fields[name])
    for name in shape.written:
        value.setdefault(name, {})
    for name, inner in shape.fields.items():
        content = value.get(name)
        if content is not None:
            value[name] = _rewritten(inner, content)


def _rewritten(shape: Shape, value: Any) -> Any:
    match shape:
        case Record():
            rewrite(shape, value)
        case Sequence():
            return [_rewritten(shape.item, item) for item in value]
        case Mapping():
            return {key: _rewritten(shape.value, item) for key, item in value.items()}
        case Quantity():
            return canonical(value)
    return value


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
