"""Checks a value against its schema and finds all problems, with the messages of an API server.

Problems are of the schema (types, lengths, required fields) or of its rules. A server skips the rules if the schema has certain
problems; `Findings.reported` is the list that it returns.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.paths import child, element
from trainwright.api.quantities import parse_quantity
from trainwright.api.schema.types import (
    STRING,
    AnyValue,
    Boolean,
    Integer,
    IntOrString,
    ListOf,
    MapOf,
    Quantity,
    Rule,
    Schema,
    String,
    Struct,
)
from trainwright.api.times import is_moment

ROOT = "<nil>"
"""The API's name for the object itself."""
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
_UNASKED = Problem(
    ROOT,
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
_FORMS = {"FieldValueTypeInvalid", "FieldValueRequired"}


@dataclass
class Findings:
    """The problems found: of the schema, and of its rules."""

    schema_problems: list[Problem] = field(default_factory=list)
    rules: list[Problem] = field(default_factory=list)

    @property
    def malformed(self) -> bool:
        """Whether code that relies on types and required fields would fail."""
        return any(problem.reason in _FORMS for problem in self.schema_problems)

    def reported(self) -> list[Problem]:
        """The problems as an API server lists them."""
        if any(problem.reason in _BLOCKING for problem in self.schema_problems):
            return [*self.schema_problems, _UNASKED]
        return self.schema_problems + self.rules

    def all(self) -> list[Problem]:
        return self.schema_problems + self.rules


def findings(schema: Schema, value: Any, old: Any = None) -> Findings:
    """All problems of `value`. `old` is the value that it replaces; unchanged parts are not reported."""
    found = Findings()
    _check(schema, value, old, "", found)
    return found


def _check(schema: Schema, value: Any, old: Any, path: str, found: Findings) -> None:
    if old is not None and old == value:
        return
    if not _CHECKERS[type(schema)](schema, value, old, path, found):
        return
    for rule in schema.rules:
        _ask(rule, value, old, path, found)


def _ask(rule: Rule, value: Any, old: Any, path: str, found: Findings) -> None:
    if rule.holds is not None:
        kept = _safely(rule.holds, value)
    else:
        kept = old is None or rule.keeps is None or _safely(rule.keeps, old, value)
    if not kept:
        shown = "" if isinstance(value, dict | list) else f"{as_json(value)}: "
        found.rules.append(Problem(path or ROOT, f"Invalid value: {shown}{rule.message}", at=rule.about))


def _safely(condition: Any, *values: Any) -> bool:
    """Whether a condition holds; True for a value that the condition cannot read, which other problems report."""
    try:
        return bool(condition(*values))
    except (AttributeError, KeyError, TypeError):
        return True


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _wrong_type(path: str, value: Any, wanted: str) -> Problem:
    found = type_of(value)
    where = path or "<nil>"
    return Problem(
        where, f'Invalid value: "{found}": {where} in body must be of type {wanted}: "{found}"', "FieldValueTypeInvalid"
    )


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def type_of(value: Any) -> str:
    """The JSON Schema type of a value."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPES.get(type(value), "null")


def _bad(found: Findings, path: str, message: str, reason: str = "FieldValueInvalid") -> None:
    found.schema_problems.append(Problem(path or ROOT, message, reason))


def _text(schema: String, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, str):
        found.schema_problems.append(_wrong_type(path, value, "string"))
        return False
    if schema.one_of and value not in schema.one_of:
        _bad(
            found,
            path,
            f"Unsupported value: {as_json(value)}: supported values: {quoted(schema.one_of)}",
            "FieldValueNotSupported",
        )
    if len(value) < schema.at_least:
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body should be at least {schema.at_least} chars long")
    if schema.at_most is not None and len(value) > schema.at_most:
        _bad(found, path, f"Too long: may not be more than {schema.at_most} bytes", "FieldValueTooLong")
    if schema.pattern is not None and expression(schema.pattern).search(value) is None:
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body should match '{schema.pattern}'")
    if schema.base64 and not is_base64(value):
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body must be of type byte: {as_json(value)}")
    if schema.moment and not is_moment(value):
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body must be of type date-time: {as_json(value)}")
    return True


def is_base64(text: str) -> bool:
    try:
        b64decode("".join(text.split("\n")), validate=True)
    except ValueError:
        return False
    return True


def quoted(values: tuple[str, ...]) -> str:
    return ", ".join(as_json(value) for value in values)


@cache
def expression(pattern: str) -> re.Pattern[str]:
    """A pattern of the API as a Python expression: `$` becomes `\\Z`, the end of the text."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern, re.ASCII)


def _whole(schema: Integer, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        found.schema_problems.append(_wrong_type(path, value, "integer"))
        return False
    if not fits(schema, value):
        _bad(
            found,
            path,
            f"Invalid value: {as_json(value)}: {path} in body must be of type int{schema.bits or ''}: {as_json(value)}",
        )
    if schema.at_least is not None and value < schema.at_least:
        _bad(found, path, f"Invalid value: {value}: {path} in body should be greater than or equal to {schema.at_least}")
    if schema.at_most is not None and value > schema.at_most:
        _bad(found, path, f"Invalid value: {value}: {path} in body should be less than or equal to {schema.at_most}")
    return True


def fits(schema: Integer, value: float) -> bool:
    """Whether a number fits into the schema's bits."""
    most = 1 << (schema.bits or 64) - 1
    return -most <= value < most


def _flag(_shape: Boolean, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, bool):
        found.schema_problems.append(_wrong_type(path, value, "boolean"))
        return False
    return True


def _int_or_text(schema: Schema, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if type_of(value) not in ("integer", "string"):
        found.schema_problems.append(_wrong_type(path, value, "integer,string"))
        return False
    if isinstance(schema, Quantity) and isinstance(value, str) and expression(QUANTITY_PATTERN).search(value) is None:
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body should match '{QUANTITY_PATTERN}'")
    elif isinstance(schema, Quantity):
        try:
            parse_quantity(value)
        except ValueError as error:
            _bad(found, path, f"Invalid value: {error}")
    return True


def _sequence(schema: ListOf, value: Any, old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, list):
        found.schema_problems.append(_wrong_type(path, value, "array"))
        return False
    if len(value) < schema.at_least:
        _bad(found, path, f"Invalid value: {len(value)}: {path} in body should have at least {schema.at_least} items")
    if schema.at_most is not None and len(value) > schema.at_most:
        _bad(found, path, f"Too many: {len(value)}: must have at most {schema.at_most} items", "FieldValueTooMany")
    before = _by_key(schema, old) if old is not None else {}
    for index, item in enumerate(value):
        if not (schema.item is STRING and type(item) is str):
            _check(schema.item, item, before.get(_key(schema, item)) if before else None, element(path, index), found)
    if (schema.keys or schema.distinct) and len(value) > 1:
        _distinct(schema, value, path, found)
    return True


def _key(schema: ListOf, item: Any) -> Any:
    """The key of an element among its siblings, or None."""
    if not schema.keys or not isinstance(item, dict):
        return None
    key = tuple(item.get(name) for name in schema.keys)
    return key if all(isinstance(part, str | int) for part in key) else None


def _by_key(schema: ListOf, old: Any) -> dict[Any, Any]:
    if not schema.keys or not isinstance(old, list):
        return {}
    found = {_key(schema, item): item for item in old}
    found.pop(None, None)
    return found


def _distinct(schema: ListOf, value: list[Any], path: str, found: Findings) -> None:
    seen: set[Any] = set()
    for index, item in enumerate(value):
        if schema.keys and not isinstance(item, dict):
            continue
        shown = {name: item[name] for name in schema.keys if name in item} if schema.keys else item
        key = _hashable(shown)
        if key in seen:
            _bad(found, element(path, index), f"Duplicate value: {as_json(shown)}", "FieldValueDuplicate")
        seen.add(key)


def _hashable(value: Any) -> Any:
    """A hashable value that is equal for equal JSON; `1` and `true` differ."""
    if isinstance(value, dict):
        return tuple((name, _hashable(inner)) for name, inner in value.items())
    return value if isinstance(value, str) else as_json(value)


def _mapping(schema: MapOf, value: Any, old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, dict):
        found.schema_problems.append(_wrong_type(path, value, "object"))
        return False
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        _check(schema.value, item, before.get(key), child(path, key), found)
    return True


def _record(schema: Struct, value: Any, old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, dict):
        found.schema_problems.append(_wrong_type(path, value, "object"))
        return False
    for name in schema.required:
        if name not in value:
            _bad(found, child(path, name), "Required value", "FieldValueRequired")
    if len(value) < schema.at_least_fields:
        least = schema.at_least_fields
        _bad(found, path, f"Invalid value: {len(value)}: {path} in body should have at least {least} properties")
    before = old if isinstance(old, dict) else {}
    fields = schema.fields
    for name, item in value.items():
        known = fields.get(name)
        # Most values are unlimited strings: skip building their paths.
        if known is not None and not (known is STRING and type(item) is str):
            _check(known, item, before.get(name), child(path, name), found)
    return True


def _anything(_shape: Schema, _value: Any, _old: Any, _path: str, _found: Findings) -> bool:
    return True


_CHECKERS: dict[type[Schema], Any] = {
    AnyValue: _anything,
    String: _text,
    Integer: _whole,
    Boolean: _flag,
    IntOrString: _int_or_text,
    Quantity: _int_or_text,
    ListOf: _sequence,
    MapOf: _mapping,
    Struct: _record,
}
