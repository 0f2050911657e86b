"""The schemas of all kinds, from `types.json`, and texts about their fields, from `descriptions.json`.

`make schemas` writes both files from what Kubernetes, Kubeflow Trainer and JobSet publish (Apache License 2.0).

A value is the name of a type, `[T]` a list, `map<T>` a map with text as keys; or an object with `type`, `items` or `values` and their
limits. A prefix such as `custom/` tells apart types of one name; error messages have the name without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.api.schema.rules import published_rule
from trainwright.api.schema.types import (
    ANY_VALUE,
    BOOLEAN,
    INT,
    INT_OR_STRING,
    LONG,
    PLAIN_INT,
    QUANTITY,
    STRING,
    ListOf,
    MapOf,
    Schema,
    String,
    Struct,
)

TYPES_FILE = Path(__file__).with_name("types.json")
DESCRIPTIONS_FILE = Path(__file__).with_name("descriptions.json")
_SCALARS: dict[str, Schema] = {
    "any": ANY_VALUE,
    "boolean": BOOLEAN,
    "byte": String(base64=True),
    "date-time": String(moment=True),
    "int-or-string": INT_OR_STRING,
    "int32": INT,
    "int64": LONG,
    "integer": PLAIN_INT,
    "quantity": QUANTITY,
    "string": STRING,
}
_LIMITS = {
    "enum": "one_of",
    "maxItems": "at_most",
    "maxLength": "at_most",
    "maximum": "at_most",
    "minItems": "at_least",
    "minLength": "at_least",
    "minProperties": "at_least_fields",
    "minimum": "at_least",
    "pattern": "pattern",
    "default": "default",
    "retainKeys": "retain_keys",
}


@cache
def struct_named(name: str) -> Struct:
    """Return the schema of a kind or of a part of one, such as `Pod` or `EnvVar`. Raises KeyError for an unknown name."""
    schema = _schema_named(name)
    if not isinstance(schema, Struct):
        raise KeyError(name)
    return schema


def description_of(owner: str, field: str) -> str:
    """Return the text about a field of a type for `kubectl explain`; empty if there is none."""
    texts = _texts()
    return texts.get(owner, {}).get(field) or texts.get(owner.rpartition("/")[2], {}).get(field, "")


@cache
def _schema_named(name: str) -> Schema:
    if name in _SCALARS:
        return _SCALARS[name]
    if name.startswith("["):
        return ListOf(_schema_named(name[1:-1]))
    if name.startswith("map<"):
        return MapOf(_schema_named(name[4:-1]))
    body = _types()[name]
    return Struct(
        {field: _schema(node) for field, node in body["fields"].items()},
        tuple(body.get("required", ())),
        name=name,
        rules=tuple(map(published_rule, body.get("rules", ()))),
        atomic=body.get("atomic", False),
        written=tuple(body.get("written", ())),
    )


def _schema(node: str | Mapping[str, Any]) -> Schema:
    if isinstance(node, str):
        return _schema_named(node)
    if "items" in node:
        schema: Schema = ListOf(
            _schema(node["items"]), keys=tuple(node.get("keys", ())), distinct=node.get("set", False), merge_key=node.get("merge")
        )
    elif "values" in node:
        schema = MapOf(_schema(node["values"]), atomic=node.get("atomic", False))
    else:
        schema = _schema_named(node["type"])
    limits: dict[str, Any] = {
        _LIMITS[key]: tuple(value) if key == "enum" else value for key, value in node.items() if key in _LIMITS
    }
    if "rules" in node:
        limits["rules"] = tuple(map(published_rule, node["rules"]))
    return replace(schema, **limits) if limits else schema


@cache
def _types() -> dict[str, Any]:
    types: dict[str, Any] = json.loads(TYPES_FILE.read_bytes())
    return types


@cache
def _texts() -> dict[str, dict[str, str]]:
    texts: dict[str, dict[str, str]] = json.loads(DESCRIPTIONS_FILE.read_bytes())
    return texts
