"""Makes values that every reader of JSON accepts: without NaN, infinity, too large numbers, lone surrogates and deep nesting.

Kubeflow Pipelines fails a step whose output has one of these, however long it has run.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

MAX_DEPTH = 90
_SURROGATES = re.compile("[\ud800-\udfff]")
_LARGEST = 2**1023


class Finite(NamedTuple):
    """A value as JSON, and what was changed in it, each with its path."""

    value: Any
    changed: tuple[str, ...]


def finite_json(value: Any) -> Finite:
    """Return the value with null for numbers that are not finite and for what is nested too deeply, and U+FFFD for lone surrogates."""
    changed: list[str] = []
    return Finite(_finite(value, "", changed, 0), tuple(changed))


def _finite(value: Any, path: str, changed: list[str], depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, path, changed)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        changed.append(f"{_shown(path)}: a number that is too large is written as null")
        return None
    if isinstance(value, float) and not math.isfinite(value):
        changed.append(f"{_shown(path)}: {value} is written as null")
        return None
    if isinstance(value, dict | list | tuple) and depth >= MAX_DEPTH:
        changed.append(f"{_shown(path)}: more than {MAX_DEPTH} levels deep, the rest is written as null")
        return None
    if isinstance(value, dict):
        return {
            _text(key, path, changed) if isinstance(key, str) else key: _finite(
                one, f"{path}.{key}".lstrip("."), changed, depth + 1
            )
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_finite(one, f"{path}[{at}]", changed, depth + 1) for at, one in enumerate(value)]
    return value


def _text(text: str, path: str, changed: list[str]) -> str:
    if not _SURROGATES.search(text):
        return text
    changed.append(f"{_shown(path)}: half of a surrogate pair is replaced")
    return _SURROGATES.sub("\ufffd", text)


def _shown(path: str) -> str:
    return _SURROGATES.sub("\ufffd", path[:120]) or "the value"
