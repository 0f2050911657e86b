"""One walk over a value and its shape that finds everything wrong, in the words of an API server that has the schema.

Findings are of two sorts: of the schema (types, lengths, required fields) and of its rules. A server does not ask the rules
while the schema finds something that could mislead them; `Findings.told` is what it would then say.
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
from trainwright.api.shapes import (
    TEXT,
    Anything,
    Flag,
    IntOrText,
    Mapping,
    Quantity,
    Record,
    Rule,
    Sequence,
    Shape,
    Text,
    Whole,
)
from trainwright.api.times import is_moment

ROOT = "<nil>"
"""How the API names the object itself."""
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
    """What a walk found, apart: of the schema, and of the rules that stand in it."""

    schema: list[Problem] = field(default_factory=list)
    rules: list[Problem] = field(default_factory=list)

    @property
    def malformed(self) -> bool:
        """Whether code that relies on types and required fields would stumble."""
        return any(problem.reason in _FORMS for problem in self.schema)

    def told(self) -> list[Problem]:
        """The problems as an API server lists them."""
        if any(problem.reason in _BLOCKING for problem in self.schema):
            return [*self.schema, _UNASKED]
        return self.schema + self.rules

    def all(self) -> list[Problem]:
        return self.schema + self.rules


def findings(shape: Shape, value: Any, old: Any = None) -> Findings:
    """Everything wrong with `value`; `old` is what it replaces, and what is the same in both is not held against it."""
    found = Findings()
    _check(shape, value, old, "", found)
    return found


def _check(shape: Shape, value: Any, old: Any, path: str, found: Findings) -> None:
    if old is not None and old == value:
        return
    if not _CHECKERS[type(shape)](shape, value, old, path, found):
        return
    for rule in shape.rules:
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
    """Whether a condition holds; it is not held against a value that other findings already call misshapen."""
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
    """What JSON Schema calls the type of a value."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPES.get(type(value), "null")


def _bad(found: Findings, path: str, message: str, reason: str = "FieldValueInvalid") -> None:
    found.schema.append(Problem(path or ROOT, message, reason))


def _text(shape: Text, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, str):
        found.schema.append(_wrong_type(path, value, "string"))
        return False
    if shape.one_of and value not in shape.one_of:
        _bad(
            found,
            path,
            f"Unsupported value: {as_json(value)}: supported values: {quoted(shape.one_of)}",
            "FieldValueNotSupported",
        )
    if len(value) < shape.at_least:
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body should be at least {shape.at_least} chars long")
    if shape.at_most is not None and len(value) > shape.at_most:
        _bad(found, path, f"Too long: may not be more than {shape.at_most} bytes", "FieldValueTooLong")
    if shape.pattern is not None and expression(shape.pattern).search(value) is None:
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body should match '{shape.pattern}'")
    if shape.base64 and not is_base64(value):
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body must be of type byte: {as_json(value)}")
    if shape.moment and not is_moment(value):
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
    """A pattern of the API as Python reads it: there `$` is the very end of the text."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern, re.ASCII)


def _whole(shape: Whole, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        found.schema.append(_wrong_type(path, value, "integer"))
        return False
    if not fits(shape, value):
        _bad(
            found,
            path,
            f"Invalid value: {as_json(value)}: {path} in body must be of type int{shape.bits or ''}: {as_json(value)}",
        )
    if shape.at_least is not None and value < shape.at_least:
        _bad(found, path, f"Invalid value: {value}: {path} in body should be greater than or equal to {shape.at_least}")
    if shape.at_most is not None and value > shape.at_most:
        _bad(found, path, f"Invalid value: {value}: {path} in body should be less than or equal to {shape.at_most}")
    return True


def fits(shape: Whole, value: float) -> bool:
    """Whether a number is one of as many bits."""
    most = 1 << (shape.bits or 64) - 1
    return -most <= value < most


def _flag(_shape: Flag, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, bool):
        found.schema.append(_wrong_type(path, value, "boolean"))
        return False
    return True


def _int_or_text(shape: Shape, value: Any, _old: Any, path: str, found: Findings) -> bool:
    if type_of(value) not in ("integer", "string"):
        found.schema.append(_wrong_type(path, value, "integer,string"))
        return False
    if isinstance(shape, Quantity) and isinstance(value, str) and expression(QUANTITY_PATTERN).search(value) is None:
        _bad(found, path, f"Invalid value: {as_json(value)}: {path} in body should match '{QUANTITY_PATTERN}'")
    return True


def _sequence(shape: Sequence, value: Any, old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, list):
        found.schema.append(_wrong_type(path, value, "array"))
        return False
    if len(value) < shape.at_least:
        _bad(found, path, f"Invalid value: {len(value)}: {path} in body should have at least {shape.at_least} items")
    if shape.at_most is not None and len(value) > shape.at_most:
        _bad(found, path, f"Too many: {len(value)}: must have at most {shape.at_most} items", "FieldValueTooMany")
    before = _by_key(shape, old) if old is not None else {}
    for index, item in enumerate(value):
        if not (shape.item is TEXT and type(item) is str):
            _check(shape.item, item, before.get(_key(shape, item)) if before else None, element(path, index), found)
    if (shape.keys or shape.distinct) and len(value) > 1:
        _distinct(shape, value, path, found)
    return True


def _key(shape: Sequence, item: Any) -> Any:
    """What tells an element from its siblings; None where nothing does."""
    if not shape.keys or not isinstance(item, dict):
        return None
    key = tuple(item.get(name) for name in shape.keys)
    return key if all(isinstance(part, str | int) for part in key) else None


def _by_key(shape: Sequence, old: Any) -> dict[Any, Any]:
    if not shape.keys or not isinstance(old, list):
        return {}
    found = {_key(shape, item): item for item in old}
    found.pop(None, None)
    return found


def _distinct(shape: Sequence, value: list[Any], path: str, found: Findings) -> None:
    seen: set[Any] = set()
    for index, item in enumerate(value):
        if shape.keys and not isinstance(item, dict):
            continue
        shown = {name: item[name] for name in shape.keys if name in item} if shape.keys else item
        key = _hashable(shown)
        if key in seen:
            _bad(found, element(path, index), f"Duplicate value: {as_json(shown)}", "FieldValueDuplicate")
        seen.add(key)


def _hashable(value: Any) -> Any:
    """Something that is equal where values are the same JSON, `1` and `true` apart."""
    if isinstance(value, dict):
        return tuple((name, _hashable(inner)) for name, inner in value.items())
    return value if isinstance(value, str) else as_json(value)


def _mapping(shape: Mapping, value: Any, old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, dict):
        found.schema.append(_wrong_type(path, value, "object"))
        return False
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        _check(shape.value, item, before.get(key), child(path, key), found)
    return True


def _record(shape: Record, value: Any, old: Any, path: str, found: Findings) -> bool:
    if not isinstance(value, dict):
        found.schema.append(_wrong_type(path, value, "object"))
        return False
    for name in shape.required:
        if name not in value:
            _bad(found, child(path, name), "Required value", "FieldValueRequired")
    if len(value) < shape.at_least_fields:
        least = shape.at_least_fields
        _bad(found, path, f"Invalid value: {len(value)}: {path} in body should have at least {least} properties")
    before = old if isinstance(old, dict) else {}
    fields = shape.fields
    for name, item in value.items():
        known = fields.get(name)
        # Text without limits is most of what there is: no path is built for it.
        if known is not None and not (known is TEXT and type(item) is str):
            _check(known, item, before.get(name), child(path, name), found)
    return True


def _anything(_shape: Shape, _value: Any, _old: Any, _path: str, _found: Findings) -> bool:
    return True


_CHECKERS: dict[type[Shape], Any] = {
    Anything: _anything,
    Text: _text,
    Whole: _whole,
    Flag: _flag,
    IntOrText: _int_or_text,
    Quantity: _int_or_text,
    Sequence: _sequence,
    Mapping: _mapping,
    Record: _record,
}
