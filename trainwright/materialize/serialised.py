"""A value as Kubernetes' Go types would write it after reading it: zero values gone, structs there, quantities canonical."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical
from trainwright.materialize.template_types import MAPS, Written


def as_written(kind: Written, value: Obj, *, complete: bool = True) -> Obj:
    """`value` in that form, as a new object.

    `complete` adds what the type always writes and the schema's defaults; without it the value is the part of one
    that a patch names.
    """
    written: Obj = {}
    for key, item in value.items():
        if item is None or (not item and (key in kind.plain or key in MAPS or isinstance(item, list))):
            continue
        inner = kind.inner.get(key)
        if key in kind.amounts:
            written[key] = {n: canonical(a) for n, a in item.items()} if isinstance(item, dict) else canonical(item)
        elif inner is None:
            copied = _copied(item)
            if copied or not (key in MAPS or isinstance(copied, list)):
                written[key] = copied
        elif isinstance(item, list):
            written[key] = [as_written(inner, element, complete=complete) for element in item]
        else:
            written[key] = as_written(inner, item, complete=complete)
    if complete:
        for key, default in kind.defaults.items():
            written.setdefault(key, default)
        for key in kind.always:
            if key not in written:
                written[key] = as_written(kind.inner[key], {}) if key in kind.inner else {}
    return written


def quantity_problems(kind: Written, value: Obj, path: str) -> Iterator[Problem]:
    """Every quantity in a value that is none; `as_written` expects that there are no such."""
    for key, item in value.items():
        where, inner = f"{path}.{key}", kind.inner.get(key)
        if key in kind.amounts:
            for name, amount in item.items() if isinstance(item, dict) else [("", item)]:
                if amount is not None and (reason := quantity_error(amount)):
                    yield Problem(f"{where}[{name}]" if name else where, f"Invalid value: {reason}")
        elif inner is not None and isinstance(item, dict):
            yield from quantity_problems(inner, item, where)
        elif inner is not None:
            for index, element in enumerate(item or []):
                yield from quantity_problems(inner, element, f"{where}[{index}]")


def quantity_error(amount: str | int | float) -> str:
    """Why an amount is no quantity; empty when it is one."""
    try:
        canonical(amount)
    except ValueError as error:
        return str(error)
    return ""


def _copied(value: Any) -> Any:
    """A copy of a part that is written as it is, but for empty lists and maps and nulls inside of it."""
    if isinstance(value, dict):
        copied = {key: _copied(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in copied.items() if item or not (key in MAPS or isinstance(item, list))}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
