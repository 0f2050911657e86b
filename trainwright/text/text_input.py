"""Text from files and options: one limit of size, UTF-8 without control characters, one error, and the one reader of JSON.

Everything that parses such text raises `Unreadable`, so that every command says in the same way where the problem is. Python's own
reader of JSON accepts NaN, duplicate keys, integers above 64 bits and deep nesting, or raises errors of other types for them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from trainwright.text.foreign_texts import one_line

MAX_BYTES = 16 * 1024 * 1024
"""More than any manifest: etcd stores objects of 1.5 MiB, and all CRDs of Kubeflow together take 4 MiB."""
MAX_DEPTH = 120
"""Nesting levels: the API server's 100 for an object, and those of a List and of `managedFields` around it."""
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What YAML 1.1 calls not printable; the byte order mark is accepted at the start only."""
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_MOST_SHOWN = 60
_LONGEST_INTEGER = 20
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]:]|-?Infinity|NaN|-?[0-9][0-9.eE+-]*+', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Unreadable(ValueError):
    """A text that cannot be parsed; the message names the source, the line and the column (counted from 1, 0 if unknown)."""

    def __init__(self, source: str, problem: str, line: int = 0, column: int = 0):
        place = f"line {line}, column {column}" if line and not source else ""
        where = place or (f"{source}:{line}:{column}" if line else source)
        self.message = f"{where}: {problem}" if where else problem
        super().__init__(self.message)
        self.source, self.problem, self.line, self.column = source, problem, line, column


def decoded(data: str | bytes, source: str) -> str:
    """Return a text without its byte order mark.

    Raises Unreadable if it is too large, is not UTF-8, or contains control characters.
    """
    if len(data) > MAX_BYTES:
        raise too_large(source)
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise Unreadable(source, f"not UTF-8 text (byte {error.start})") from None
    text = text.removeprefix("\ufeff")
    if found := _CONTROL.search(text):
        raise Unreadable(source, f"contains the character U+{ord(found[0]):04X}", *position(text, found.start()))
    return text


def too_large(source: str) -> Unreadable:
    """Return the error for a text above the limit, also for readers that stop there."""
    return Unreadable(source, f"larger than {MAX_BYTES // 2**20} MiB")


def position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset."""
    line, start = 1, 0
    for found in _BREAK.finditer(text, 0, offset):
        line, start = line + 1, found.end()
    return line, offset - start + 1


def quoted(text: str) -> str:
    """Return a short quotation of a key for a message."""
    line = one_line(text)
    return repr(line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}...")


class NotJson(Unreadable):
    """The text is not JSON at all; it may be YAML."""


class _Unsupported(Exception):
    """The text is JSON as Python reads it, but has something that no API accepts."""


def read_json(data: str | bytes, source: str = "") -> Any:
    """Return the value of a JSON text.

    Raises NotJson for an error of syntax, Unreadable for what no API accepts and for what `decoded` rejects.
    """
    text = decoded(data, source)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_real, parse_constant=_constant)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        if text.count("{") + text.count("[") <= MAX_DEPTH:
            return value
    except json.JSONDecodeError as error:
        raise NotJson(source, f"not JSON: {error.msg}", error.lineno, error.colno) from None
    except UnicodeEncodeError:
        raise Unreadable(source, "contains half of a surrogate pair") from None
    except (RecursionError, _Unsupported):  # looked for below, with its place
        value = None
    problem = _first_problem(text)
    if problem is None:
        return value
    raise Unreadable(source, problem[0], *position(text, problem[1]))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unsupported
    return found


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER or not -(2**63) <= (number := int(digits)) < 2**64:
        raise _Unsupported
    return number


def _real(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise _Unsupported
    return number


def _constant(name: str) -> Any:
    raise _Unsupported


def _first_problem(text: str) -> tuple[str, int] | None:
    """Return the first thing that no API accepts, and its offset; parsers do not report offsets of valid values."""
    keys: list[set[str]] = []
    latest: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "{[":
            keys.append(set())
            if len(keys) > MAX_DEPTH:
                return f"more than {MAX_DEPTH} levels deep", token.start()
        elif first in "}]":
            del keys[-1:]
        elif first == ":" and latest is not None and keys:
            key = json.loads(latest[0], strict=False)
            if key in keys[-1]:
                return f"duplicate key {quoted(key)}", latest.start()
            keys[-1].add(key)
        elif first != '"' and (problem := _number_problem(token[0])):
            return problem, token.start()
        latest = token
    return None


def _number_problem(digits: str) -> str | None:
    if digits.endswith(("NaN", "Infinity")):
        return f"a number that JSON does not support: {digits}"
    try:
        (_integer if digits.lstrip("-").isdigit() else _real)(digits)
    except _Unsupported:
        return "a number that JSON does not support: too large"
    except ValueError:  # not JSON: a later error of syntax
        return None
    return None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, as a float at least: Python's JSON has NaN, and true is 1."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False
