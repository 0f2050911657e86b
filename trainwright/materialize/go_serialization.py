"""Serializes values like Kubernetes' Go types: zero values are omitted, structs are present, quantities are canonical."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical
from trainwright.materialize.go_types import MAP_FIELDS, GoType


def serialize(kind: GoType, value: Obj, *, complete: bool = True) -> Obj:
    """Return a new object as the Go type `kind` would serialize `value`.

    `complete` adds the fields that are always present and the schema's defaults; without it the value is a patch.
    """
    written: Obj = {}
    for key, item in value.items():
        if item is None or (not item and (key in kind.omit_empty or key in MAP_FIELDS or isinstance(item, list))):
            continue
        nested = kind.nested.get(key)
        if key in kind.quantities:
            written[key] = {n: canonical(a) for n, a in item.items()} if isinstance(item, dict) else canonical(item)
        elif nested is None:
            copied = _copied(item)
            if copied or not (key in MAP_FIELDS or isinstance(copied, list)):
                written[key] = copied
        elif isinstance(item, list):
            written[key] = [serialize(nested, element, complete=complete) for element in item]
        else:
            written[key] = serialize(nested, item, complete=complete)
    if complete:
        for key, default in kind.defaults.items():
            written.setdefault(key, default)
        for key in kind.always_present:
            if key not in written:
                written[key] = serialize(kind.nested[key], {}) if key in kind.nested else {}
    return written


def quantity_problems(kind: GoType, value: Obj, path: str) -> Iterator[Problem]:
    """Yield invalid quantities. `serialize` requires that there are none."""
    for key, item in value.items():
        where, nested = f"{path}.{key}", kind.nested.get(key)
        if key in kind.quantities:
            for name, amount in item.items() if isinstance(item, dict) else [("", item)]:
                if amount is not None and (reason := quantity_error(amount)):
                    yield Problem(f"{where}[{name}]" if name else where, f"Invalid value: {reason}")
        elif nested is not None and isinstance(item, dict):
            yield from quantity_problems(nested, item, where)
        elif nested is not None:
            for index, element in enumerate(item or []):
                yield from quantity_problems(nested, element, f"{where}[{index}]")


def quantity_error(amount: str | int | float) -> str:
    """Return why an amount is not a valid quantity, or an empty string."""
    try:
        canonical(amount)
    except ValueError as error:
        return str(error)
    return ""


def _copied(value: Any) -> Any:
    """Return a copy of an untyped value without nulls and empty lists and maps."""
    if isinstance(value, dict):
        copied = {key: _copied(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in copied.items() if item or not (key in MAP_FIELDS or isinstance(item, list))}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
