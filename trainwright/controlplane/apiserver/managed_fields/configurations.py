"""Validates applied configurations against the schema, with the error messages of structured-merge-diff."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.patching.strategic_merge import in_go
from trainwright.api.schema.types import ListOf, MapOf, Schema, String, Struct
from trainwright.controlplane.apiserver.managed_fields.field_diff import element_of
from trainwright.controlplane.apiserver.managed_fields.field_set import shown


def configuration_errors(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """All errors of a configuration, each prefixed with its path."""
    if isinstance(schema, Struct) and isinstance(value, dict):
        for key, inner in value.items():
            if key in schema.fields:
                yield from configuration_errors(schema.fields[key], inner, f"{path}.{key}")
            elif not schema.open:
                yield f"{path}.{key}: field not declared in schema"
    elif isinstance(schema, MapOf) and isinstance(value, dict):
        for key, inner in value.items():
            yield from configuration_errors(schema.value, inner, f"{path}.{key}")
    elif isinstance(schema, ListOf) and isinstance(value, list):
        yield from (_elements if schema.keys else _items)(schema, value, path)
    elif isinstance(schema, String) and isinstance(value, int | float):
        printed = str(value).lower() if isinstance(value, bool) else value
        yield f"{path}: expected string, got &value.valueUnstructured{{Value:{printed}}}"
    elif value is not None and isinstance(schema, Struct | MapOf | ListOf):
        yield f"{path}: expected {'list' if isinstance(schema, ListOf) else 'map'}, got &{{{in_go(value)}}}"


def _items(schema: ListOf, items: list[Any], path: str) -> Iterator[str]:
    for index, item in enumerate(items):
        yield from configuration_errors(schema.item, item, f"{path}[{index}]")


def _elements(schema: ListOf, items: list[Any], path: str) -> Iterator[str]:
    seen: set[str] = set()
    known = schema.item.fields if isinstance(schema.item, Struct) else {}
    for index, item in enumerate(items):
        given = item if isinstance(item, dict) else {}
        missing = [key for key in schema.keys if given.get(key) is None and (key not in known or known[key].default is None)]
        if missing:
            why = f'associative list with keys has an element that omits key field "{missing[0]}"'
            yield f"{path}: element {index}: {why} (and doesn't have default value)"
            continue
        name = shown((element_of(schema, item),))
        if name in seen:
            yield f"{path}: duplicate entries for key {name}"
        seen.add(name)
        yield from configuration_errors(schema.item, item, path + name)
