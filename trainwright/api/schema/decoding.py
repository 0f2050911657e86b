"""Errors of a server or a webhook that decodes a value of the wrong type; only the first is reported.

The API server decodes built-in kinds, the defaulting webhooks decode TrainJobs and JobSets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.paths import child, element
from trainwright.api.quantities import parse_quantity
from trainwright.api.schema.check import as_json, fits, is_base64, type_of
from trainwright.api.schema.types import (
    STRING,
    AnyValue,
    Boolean,
    Integer,
    IntOrString,
    ListOf,
    MapOf,
    Quantity,
    Schema,
    String,
    Struct,
)
from trainwright.api.times import is_moment

_NUMERIC = ("integer", "number")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_USUAL_QUANTITY = re.compile(r"[0-9]{1,9}(m|[kMGTP]|[KMGTP]i)?\Z", re.ASCII)
_PARSED = "FieldValueInvalid"
"""An error of a self-decoding value (quantity, time) ends decoding and replaces earlier errors."""


def decoding_problems(schema: Struct, obj: Any, type_name: str) -> list[Problem]:
    """Why `obj` cannot be decoded, in decoding order; the server reports the first."""
    if _is_plain(schema, obj):
        return []
    found = list(_problems(schema, obj, "", "", type_name))
    return sorted(found, key=lambda problem: problem.reason != _PARSED)


def _is_plain(schema: Schema, value: Any) -> bool:
    """Whether a value is certainly decodable: most are."""
    kind, found = type(schema), type(value)
    if value is None or kind is AnyValue:
        return True
    if kind is String:
        return found is str and not schema.base64 and (not schema.moment or is_moment(value))  # type: ignore[attr-defined]
    if kind is Boolean:
        return found is bool
    if kind is IntOrString:
        return found is str or found is int
    if kind is Quantity:
        return found is str and _USUAL_QUANTITY.match(value) is not None
    if kind is Integer:
        return found is int and fits(schema, value)  # type: ignore[arg-type]
    if kind is Struct and found is dict:
        fields = schema.fields  # type: ignore[attr-defined]
        for name, inner in value.items():
            known = fields.get(name)
            if known is not None and not (known is STRING and type(inner) is str) and not _is_plain(known, inner):
                return False
        return True
    if kind is MapOf and found is dict:
        within = schema.value  # type: ignore[attr-defined]
        return all(_is_plain(within, inner) for inner in value.values())
    if kind is ListOf and found is list:
        within = schema.item  # type: ignore[attr-defined]
        return all(_is_plain(within, inner) for inner in value)
    return False


def _problems(schema: Schema, value: Any, path: str, fields: str, owner: str) -> Iterator[Problem]:
    if value is None or isinstance(schema, AnyValue):
        return
    if isinstance(schema, Quantity):
        yield from _quantity(value, path)
    elif isinstance(schema, String) and schema.moment and isinstance(value, str):
        yield from _moment(value, path)
    elif isinstance(schema, String) and schema.base64 and isinstance(value, str):
        yield from _bytes(value, path)
    elif isinstance(schema, Struct) and isinstance(value, dict):
        inside = schema.type_name or owner
        for name in sorted(value):
            if name in schema.fields:
                yield from _problems(schema.fields[name], value[name], child(path, name), child(fields, name), inside)
    elif isinstance(schema, ListOf) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(schema.item, item, element(path, index), fields, owner)
    elif isinstance(schema, MapOf) and isinstance(value, dict):
        for key in sorted(value):
            yield from _problems(schema.value, value[key], child(path, key), fields, owner)
    elif not _readable(schema, value):
        yield _misfit(schema, value, path, f"{owner}.{fields}" if fields else "")


def _readable(schema: Schema, value: Any) -> bool:
    found = type_of(value)
    if isinstance(schema, Integer):
        return found == "integer" and fits(schema, value)
    wanted = {String: ("string",), Boolean: ("boolean",), IntOrString: ("integer", "string")}
    return found in wanted.get(type(schema), ())


def _misfit(schema: Schema, value: Any, path: str, place: str) -> Problem:
    found = type_of(value)
    called = {"boolean": "bool"}.get(found, found)
    if found in _NUMERIC:
        called = f"number {as_json(value)}" if isinstance(schema, Integer) else "number"
    into = f"Go struct field {place}" if place else "Go value"
    wanted = _go_type(schema)
    return Problem(path, f"json: cannot unmarshal {called} into {into} of type {wanted}", "FieldValueTypeInvalid")


def _go_type(schema: Schema) -> str:
    match schema:
        case Integer():
            return f"int{schema.bits or ''}"
        case Boolean():
            return "bool"
        case ListOf():
            return f"[]{_go_type(schema.item)}"
        case MapOf():
            return f"map[string]{_go_type(schema.value)}"
        case Struct():
            return schema.type_name or "object"
    return "string"


def _quantity(value: Any, path: str) -> Iterator[Problem]:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        parse_quantity(value)
    except (ValueError, ArithmeticError):
        pattern = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        yield Problem(path, f"quantities must match the regular expression '{pattern}'", _PARSED)


def _bytes(value: str, path: str) -> Iterator[Problem]:
    if not is_base64(value):
        good = _BASE64.match(value)
        yield Problem(path, f"illegal base64 data at input byte {good.end() if good else 0}", _PARSED)


def _moment(value: str, path: str) -> Iterator[Problem]:
    if not is_moment(value):
        layout = "2006-01-02T15:04:05Z07:00"
        yield Problem(path, f'parsing time {as_json(value)} as "{layout}": cannot parse {as_json(value)} as "2006"', _PARSED)
