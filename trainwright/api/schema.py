"""A small language for the shape of an object, and one walk over value and shape that finds every problem.

The schemas of our kinds are written in it once; defaulting, strict checking of unknown fields, types and limits come from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.errors import Problem


@dataclass(frozen=True)
class Shape:
    """What a value may be. `default` fills an absent value; `immutable` forbids a change of a present one."""

    default: Any = field(default=None, kw_only=True)
    immutable: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Anything(Shape):
    """Passed through unchecked."""


@dataclass(frozen=True)
class Text(Shape):
    at_least: int = 0
    at_most: int | None = None
    pattern: str | None = None
    one_of: tuple[str, ...] = ()
    message: str = ""
    """What to say instead of quoting the pattern."""


@dataclass(frozen=True)
class Whole(Shape):
    """An integer between two bounds, 32 bits wide unless told otherwise."""

    at_least: int = -(2**31)
    at_most: int = 2**31 - 1


@dataclass(frozen=True)
class Flag(Shape):
    """A boolean."""


@dataclass(frozen=True)
class IntOrText(Shape):
    """A quantity or a port: an integer or a string."""


@dataclass(frozen=True)
class Sequence(Shape):
    """A list; `key` names the field (or fields) by which its elements must be unique."""

    item: Shape = Anything()
    at_least: int = 0
    at_most: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Mapping(Shape):
    """Free keys, values of one shape."""

    value: Shape = Text()


@dataclass(frozen=True)
class Record(Shape):
    """Named fields; anything else is unknown."""

    fields: dict[str, Shape] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    at_most_one: tuple[str, ...] = ()
    at_least_fields: int = 0
    open: bool = False
    """Unknown fields are let through: a part of the API that we pass on without reading."""


def problems(shape: Shape, value: Any, path: str = "", *, strict: bool = True) -> Iterator[Problem]:
    """Every way in which `value` does not fit `shape`, with field paths such as `spec.trainer.env[2].name`.

    Unknown fields count only when `strict`.
    """
    if value is None:
        return
    checker = _CHECKERS[type(shape)]
    yield from checker(shape, value, path, strict)


def with_defaults(shape: Shape, value: Any) -> Any:
    """`value` with the absent fields that have a default filled in; the argument is not changed."""
    if value is None:
        return shape.default
    if isinstance(shape, Record) and isinstance(value, dict):
        filled = dict(value)
        for name, inner in shape.fields.items():
            content = with_defaults(inner, filled.get(name))
            if content is not None:
                filled[name] = content
        return filled
    if isinstance(shape, Sequence) and isinstance(value, list):
        return [with_defaults(shape.item, item) for item in value]
    if isinstance(shape, Mapping) and isinstance(value, dict):
        return {key: with_defaults(shape.value, item) for key, item in value.items()}
    return value


def changes(shape: Shape, old: Any, new: Any, path: str = "") -> Iterator[Problem]:
    """The immutable fields that differ between two versions; adding or removing one is not a change."""
    if old is None or new is None or old == new:
        return
    if shape.immutable:
        yield Problem(path, f"Invalid value: {_shown(new)}: field is immutable")
        return
    if isinstance(shape, Record) and isinstance(old, dict) and isinstance(new, dict):
        for name, inner in shape.fields.items():
            yield from changes(inner, old.get(name), new.get(name), _join(path, name))
    elif isinstance(shape, Sequence) and shape.key and isinstance(old, list) and isinstance(new, list):
        before = {item.get(shape.key): item for item in old if isinstance(item, dict)}
        for index, item in enumerate(new):
            if isinstance(item, dict):
                yield from changes(shape.item, before.get(item.get(shape.key)), item, f"{path}[{index}]")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return '"object"' if isinstance(value, dict) else '"array"' if isinstance(value, list) else str(value)


def _type_problem(path: str, value: Any, wanted: str) -> Problem:
    kinds: list[tuple[type, str]] = [(bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")]
    is_a = next((name for kind, name in kinds if isinstance(value, kind)), "object")
    return Problem(path, f'Invalid value: "{is_a}": {path} in body must be of type {wanted}: "{is_a}"', "FieldValueTypeInvalid")


def _check_text(shape: Text, value: Any, path: str, _strict: bool) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield _type_problem(path, value, "string")
        return
    if shape.one_of and value not in shape.one_of:
        allowed = ", ".join(f'"{choice}"' for choice in shape.one_of)
        yield Problem(path, f'Unsupported value: "{value}": supported values: {allowed}', "FieldValueNotSupported")
    if len(value) < shape.at_least:
        yield Problem(path, f'Invalid value: "{value}": {path} in body should be at least {shape.at_least} chars long')
    if shape.at_most is not None and len(value) > shape.at_most:
        yield Problem(path, f"Too long: may not be more than {shape.at_most} bytes", "FieldValueTooLong")
    if shape.pattern and not re.search(shape.pattern, value):
        yield Problem(path, f'Invalid value: "{value}": {shape.message or f"{path} in body should match {shape.pattern!r}"}')


def _check_whole(shape: Whole, value: Any, path: str, _strict: bool) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int):
        if not (isinstance(value, float) and value.is_integer()):
            yield _type_problem(path, value, "integer")
            return
        value = int(value)
    if value < shape.at_least:
        yield Problem(path, f"Invalid value: {value}: {path} in body should be greater than or equal to {shape.at_least}")
    if value > shape.at_most:
        yield Problem(path, f"Invalid value: {value}: {path} in body should be less than or equal to {shape.at_most}")


def _check_flag(_shape: Flag, value: Any, path: str, _strict: bool) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield _type_problem(path, value, "boolean")


def _check_int_or_text(_shape: IntOrText, value: Any, path: str, _strict: bool) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        yield _type_problem(path, value, "integer,string")


def _check_sequence(shape: Sequence, value: Any, path: str, strict: bool) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield _type_problem(path, value, "array")
        return
    if len(value) < shape.at_least:
        yield Problem(path, f"Invalid value: {len(value)}: {path} in body should have at least {shape.at_least} items")
    if shape.at_most is not None and len(value) > shape.at_most:
        yield Problem(path, f"Too many: {len(value)}: must have at most {shape.at_most} items", "FieldValueTooMany")
    seen: set[Any] = set()
    for index, item in enumerate(value):
        where = f"{path}[{index}]"
        yield from problems(shape.item, item, where, strict=strict)
        if not shape.key or not isinstance(item, dict):
            continue
        if item.get(shape.key) is None:
            yield Problem(f"{where}.{shape.key}", "Required value", "FieldValueRequired")
        elif item[shape.key] in seen:
            yield Problem(where, f'Duplicate value: {{"{shape.key}":{_shown(item[shape.key])}}}', "FieldValueDuplicate")
        else:
            seen.add(item[shape.key])


def _check_mapping(shape: Mapping, value: Any, path: str, strict: bool) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield _type_problem(path, value, "object")
        return
    for key, item in value.items():
        yield from problems(shape.value, item, _join(path, str(key)), strict=strict)


def _check_record(shape: Record, value: Any, path: str, strict: bool) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield _type_problem(path, value, "object")
        return
    present = [name for name, item in value.items() if item is not None]
    for name in shape.required:
        if name not in present:
            yield Problem(_join(path, name), "Required value", "FieldValueRequired")
    if len(present) < shape.at_least_fields:
        yield Problem(
            path, f"Invalid value: {len(present)}: {path} in body should have at least {shape.at_least_fields} properties"
        )
    chosen = [name for name in shape.at_most_one if name in present]
    if len(chosen) > 1:
        yield Problem(path, 'Invalid value: "object": Only one of the policy can be configured')
    for name, item in value.items():
        if name in shape.fields:
            yield from problems(shape.fields[name], item, _join(path, name), strict=strict)
        elif strict and not shape.open:
            yield Problem(_join(path, name), f'unknown field "{_join(path, name)}"', "FieldUnknown")


def _check_anything(_shape: Anything, _value: Any, _path: str, _strict: bool) -> Iterator[Problem]:
    return iter(())


_CHECKERS: dict[type[Shape], Any] = {
    Anything: _check_anything,
    Text: _check_text,
    Whole: _check_whole,
    Flag: _check_flag,
    IntOrText: _check_int_or_text,
    Sequence: _check_sequence,
    Mapping: _check_mapping,
    Record: _check_record,
}
