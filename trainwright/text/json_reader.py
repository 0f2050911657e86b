"""The one reader of JSON from files and options: without NaN, duplicate keys, integers above 64 bits and deep nesting.

Python's own accepts all of these, or raises errors of other types for them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from trainwright.text.text_input import MAX_DEPTH, Unreadable, decoded, position, quoted

_LONGEST_INTEGER = 20
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]:]|-?Infinity|NaN|-?[0-9][0-9.eE+-]*+', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


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
    except (RecursionError, _Unsupported):
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
