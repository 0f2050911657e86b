"""What keeps an applied configuration from being read field by field: what its kind does not have, elements without their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.shapes import Mapping, Record, Sequence, Shape, Text
from trainwright.api.strategic_merge import in_go
from trainwright.controlplane.apiserver.field_walks import element_of
from trainwright.controlplane.apiserver.fields import shown


def configuration_faults(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """Everything wrong, each with its path as server-side apply writes it."""
    if isinstance(shape, Record) and isinstance(value, dict):
        for key, inner in value.items():
            if key in shape.fields:
                yield from configuration_faults(shape.fields[key], inner, f"{path}.{key}")
            elif not shape.open:
                yield f"{path}.{key}: field not declared in schema"
    elif isinstance(shape, Mapping) and isinstance(value, dict):
        for key, inner in value.items():
            yield from configuration_faults(shape.value, inner, f"{path}.{key}")
    elif isinstance(shape, Sequence) and isinstance(value, list):
        yield from (_elements if shape.keys else _items)(shape, value, path)
    elif isinstance(shape, Text) and isinstance(value, int | float):
        printed = str(value).lower() if isinstance(value, bool) else value
        yield f"{path}: expected string, got &value.valueUnstructured{{Value:{printed}}}"
    elif value is not None and isinstance(shape, Record | Mapping | Sequence):
        yield f"{path}: expected {'list' if isinstance(shape, Sequence) else 'map'}, got &{{{in_go(value)}}}"


def _items(shape: Sequence, items: list[Any], path: str) -> Iterator[str]:
    for index, item in enumerate(items):
        yield from configuration_faults(shape.item, item, f"{path}[{index}]")


def _elements(shape: Sequence, items: list[Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    known = shape.item.fields if isinstance(shape.item, Record) else {}
    for index, item in enumerate(items):
        given = item if isinstance(item, dict) else {}
        missing = [key for key in shape.keys if given.get(key) is None and (key not in known or known[key].default is None)]
        if missing:
            why = f'associative list with keys has an element that omits key field "{missing[0]}"'
            yield f"{path}: element {index}: {why} (and doesn't have default value)"
            continue
        name = shown((element_of(shape, item),))
        if name in seen:
            yield f"{path}: duplicate entries for key {name}"
        seen.add(name)
        yield from configuration_faults(shape.item, item, path + name)
