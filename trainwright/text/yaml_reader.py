"""The one reader of YAML: builds JSON values from libyaml's events as kubectl does, within limits of depth, aliases and numbers.

PyYAML's loaders crash on deep nesting, let a few aliases fill the memory, and keep the last of duplicate keys silently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from trainwright.text.text_input import MAX_DEPTH, Unreadable, decoded, quoted

ALIASED_SIZE = 3 * 1024 * 1024
"""What aliases repeat, in characters with 8 for each value: no object that an API server accepts (3 MiB) needs more."""
_VALUE_SIZE = 8
_TOO_DEEP = f"more than {MAX_DEPTH} levels deep"
_PARSER_TOO_DEEP = "maximum nesting depth"
"""What libyaml says of `[[[[…`, from PyYAML 6.0.4 on."""
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_CONSTANTS: dict[str, Any] = {
    form: value
    for words, value in (("yes true on", True), ("no false off", False), ("null", None))
    for word in words.split()
    for form in (word, word.capitalize(), word.upper())
} | {"~": None, "": None}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_INTEGER = 80
"""Characters of any 64-bit integer, in binary with underscores; longer ones are not converted at all."""
_MERGE = object()
"""The key `<<`."""


@dataclass(frozen=True)
class YamlDocument:
    """The value of a document, and the lines of the entries of its objects and lists, by the identity of these."""

    value: Any
    line: int
    lines: dict[int, dict[str | int, int]] = field(default_factory=dict)


def read_yaml(data: str | bytes, source: str = "") -> list[Any]:
    """Return the values of all documents; None for empty ones.

    As in kubectl, timestamps are texts, keys that are numbers or booleans become texts, and `<<` merges. Unlike in PyYAML,
    `1:30` is a text. Raises Unreadable for invalid YAML, duplicate keys, numbers that JSON does not have, integers above 64
    bits, other types, more than 120 levels, aliases that repeat more than 3 MiB, and what `decoded` rejects.
    """
    return [document.value for document in read_yaml_documents(data, source)]


def read_yaml_documents(data: str | bytes, source: str = "", *, with_lines: bool = False) -> list[YamlDocument]:
    """As `read_yaml`, with the line of each document, and on request those of all fields."""
    text = decoded(data, source)
    reader = _Reader(text, source, with_lines)
    try:
        return list(reader.documents())
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem or error.context)
        words = _TOO_DEEP if _PARSER_TOO_DEEP in problem else f"not YAML: {problem}"
        raise Unreadable(source, words, *_position(mark)) from None
    except yaml.YAMLError as error:  # without a mark; its text may quote the input
        raise Unreadable(source, f"not YAML: {type(error).__name__}") from None


def _position(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


class _Reader:
    """Reads the events of one text by recursive descent, which the limit of depth keeps shallow."""

    def __init__(self, text: str, source: str, with_lines: bool):
        self._next = _Parser(text.encode()).get_event
        self._source, self._with_lines = source, with_lines
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._lines: dict[int, dict[str | int, int]] = {}
        self._size = self._repeated = 0

    def documents(self) -> Iterator[YamlDocument]:
        while not isinstance(event := self._next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors, self._lines = {}, {}
                event = self._next()
                value = self._value(event, 0)
                yield YamlDocument(self._text(value), event.start_mark.line + 1, self._lines)

    def _value(self, event: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(event, _TOO_DEEP)
        if isinstance(event, yaml.AliasEvent):
            return self._repeat(event, depth)
        before = self._size
        self._size += _VALUE_SIZE
        if isinstance(event, yaml.ScalarEvent):
            self._size += len(event.value)
            value = self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(event, depth)
        else:
            value = self._sequence(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._size - before)
        return value

    def _repeat(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            raise self._error(event, f"the alias {quoted(event.anchor)} refers to no earlier anchor")
        value, size = self._anchors[event.anchor]
        self._size += size
        self._repeated += size
        if self._repeated > ALIASED_SIZE:
            raise self._error(event, f"aliases repeat more than {ALIASED_SIZE // 2**20} MiB")
        return self._copy(value, event, depth)

    def _copy(self, value: Any, event: Any, depth: int) -> Any:
        """Copy a value, so that no change of one place changes another."""
        if depth > MAX_DEPTH:
            raise self._error(event, _TOO_DEEP)
        copied: Any
        if isinstance(value, dict):
            copied = {key: self._copy(entry, event, depth + 1) for key, entry in value.items()}
        elif isinstance(value, list):
            copied = [self._copy(entry, event, depth + 1) for entry in value]
        else:
            return value
        if self._with_lines:
            self._lines[id(copied)] = self._lines[id(value)]
        return copied

    def _sequence(self, opening: Any, depth: int) -> list[Any]:
        self._check_tag(opening, "seq")
        result: list[Any] = []
        lines: dict[str | int, int] = {}
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            if self._with_lines:
                lines[len(result)] = event.start_mark.line + 1
            result.append(self._text(self._value(event, depth + 1)))
        if self._with_lines:
            self._lines[id(result)] = lines
        return result

    def _mapping(self, opening: Any, depth: int) -> dict[str, Any]:
        self._check_tag(opening, "map")
        result: dict[str, Any] = {}
        merged: dict[str, Any] | None = None
        lines: dict[str | int, int] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event)
            if key in result or (key is _MERGE and merged is not None):
                raise self._error(event, f"duplicate key {quoted('<<' if key is _MERGE else key)}")
            inner = self._next()
            value = self._text(self._value(inner, depth + 1))
            if key is _MERGE:
                merged = self._merged(inner, value, lines)
                continue
            result[key] = value
            lines[key] = event.start_mark.line + 1
        if merged:
            result = {**merged, **result}
        if self._with_lines:
            self._lines[id(result)] = lines
        return result

    def _merged(self, event: Any, value: Any, lines: dict[str | int, int]) -> dict[str, Any]:
        """Return the entries of the objects that `<<` names, of which earlier ones have precedence."""
        result: dict[str, Any] = {}
        for entry in value if isinstance(value, list) else [value]:
            if not isinstance(entry, dict):
                raise self._error(event, "<< expects an object or a list of objects")
            result = {**entry, **result}
            for key, line in self._lines.get(id(entry), {}).items():
                lines.setdefault(key, line)
        return result

    def _key(self, event: Any) -> Any:
        """Return a key as text, as JSON has no others; `_MERGE` for `<<`."""
        if not isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            raise self._error(event, "a key is an object or a list, not a text")
        key = self._value(event, 0)
        if key is _MERGE or isinstance(key, str):
            return key
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, int | float):
            return str(key)
        raise self._error(event, "a key is null, not a text" if key is None else "a key is an object or a list, not a text")

    def _text(self, value: Any) -> Any:
        return "<<" if value is _MERGE else value

    def _scalar(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag is None:
            return self._plain(event, text) if event.implicit[0] else text
        kind = tag.removeprefix(_TAG)
        if tag == "!" or kind in ("str", "timestamp"):
            return text
        value = self._plain(event, text)
        if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        fits = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(kind)
        if fits is None or type(value) is not fits:
            raise self._error(event, f"a value of the type {quoted(tag.replace(_TAG, '!!'))} that JSON does not support")
        return value

    def _plain(self, event: Any, text: str) -> Any:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] in _NUMBER_STARTS:
            return self._number(event, text)
        return _MERGE if text == "<<" else text

    def _number(self, event: Any, text: str) -> Any:
        if _INTEGER.fullmatch(text):
            number = _integer(text)
            if number is None or not -(2**63) <= number < 2**64:
                raise self._error(event, "an integer above 64 bits that JSON does not support")
            return number
        if _FLOAT.fullmatch(text):
            value = float(text.replace("_", ""))
            if math.isinf(value):
                raise self._error(event, "a number that JSON does not support: too large")
            return value
        if _NOT_FINITE.fullmatch(text):
            raise self._error(event, f"a number that JSON does not support: {text}")
        return text

    def _check_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", f"{_TAG}{kind}"):
            raise self._error(event, f"a value of the type {quoted(event.tag.replace(_TAG, '!!'))} that JSON does not support")

    def _error(self, event: Any, problem: str) -> Unreadable:
        return Unreadable(self._source, problem, *_position(event.start_mark))


def _integer(text: str) -> int | None:
    """Return an integer of YAML 1.1, which writes octal numbers as in C; None if it is too long, or has no digits."""
    digits = text.replace("_", "") if len(text) <= _LONGEST_INTEGER else ""
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits.removeprefix("+"))
    base = {"0b": 2, "0x": 16}.get(digits[:2], 8 if digits.startswith("0") else 10)
    try:
        return sign * int(digits, base)
    except ValueError:
        return None
