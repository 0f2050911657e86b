"""A small validator of structural OpenAPI schemas, written from their definition: a second opinion on what a schema accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
}


def faults(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """The paths at which a value breaks a schema; unknown fields are left to pruning."""
    if not _has_type(schema, value):
        yield path
        return
    if "enum" in schema and value not in schema["enum"]:
        yield path
    if isinstance(value, str):
        yield from [path] * _text_is_wrong(schema, value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""), 0)
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high or (bits and not -(2**bits) <= value < 2**bits):
            yield path
    elif isinstance(value, list):
        yield from _list_faults(schema, value, path)
    elif isinstance(value, dict):
        yield from _object_faults(schema, value, path)


def _has_type(schema: dict[str, Any], value: Any) -> bool:
    whole = not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    if schema.get("x-kubernetes-int-or-string"):
        return whole or isinstance(value, str)
    if schema["type"] == "integer":
        return whole
    return isinstance(value, _TYPES[schema["type"]])


def _text_is_wrong(schema: dict[str, Any], value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return True
    pattern = schema.get("pattern")
    if pattern and not re.search(re.sub(r"\$$", r"\\Z", pattern), value, re.ASCII):
        return True
    if schema.get("format") == "date-time":
        try:
            return datetime.fromisoformat(value).tzinfo is None or "T" not in value.upper()
        except ValueError:
            return True
    return False


def _list_faults(schema: dict[str, Any], value: list[Any], path: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield path
    seen: list[Any] = []
    for index, item in enumerate(value):
        yield from faults(schema["items"], item, f"{path}[{index}]")
        keys = schema.get("x-kubernetes-list-map-keys")
        if keys is None and schema.get("x-kubernetes-list-type") != "set":
            continue
        if keys and not isinstance(item, dict):
            continue
        key = repr([(k, item[k]) for k in keys if k in item]) if keys else repr(item)
        if key in seen:
            yield f"{path}[{index}]"
        seen.append(key)


def _object_faults(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}".lstrip(".")
    if len(value) < schema.get("minProperties", 0):
        yield path
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
        if inner is not None:
            yield from faults(inner, item, f"{path}.{name}".lstrip("."))
