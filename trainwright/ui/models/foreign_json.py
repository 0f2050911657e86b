"""Bounds JSON that others have written, before it is sent to a browser: manifests, records and results may have anything in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainwright.ui.call import Json

MAX_TEXT, MAX_VALUES, MAX_DEPTH = 2_000, 4_000, 12
_LARGEST = 2**63
_CUT = " …"


def shown_text(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text that every encoder accepts, truncated; "" for None."""
    if value is None:
        return ""
    text = str(value) if not isinstance(value, int) or isinstance(value, bool) or abs(value) < _LARGEST else "a large number"
    text = text[: limit + 1].encode("utf-8", "replace").decode()
    return text if len(text) <= limit else f"{text[: limit - len(_CUT)]}{_CUT}"


def shown_number(value: object) -> int | float | None:
    """Return a finite number that fits into 64 bits, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value if abs(value) < _LARGEST else None
    return value if math.isfinite(value) else None


def shown_json(value: Any) -> Any:
    """Return a value of JSON types, at most 4,000 values and 12 levels of it; texts are truncated, and None replaces the rest.

    Numbers that are not finite, or too large for 64 bits, are None, too.
    """
    return _Bounded().shown(value, 0)


def shown_figures(values: Mapping[str, Any], limit: int = 200) -> Json:
    """Return the first `limit` figures by name: finite numbers, texts and booleans; None for other numbers."""
    found: Json = {}
    for name, value in values.items():
        if len(found) == limit:
            break
        if value is None or isinstance(value, bool):
            found[shown_text(name, 200)] = value
        elif isinstance(value, int | float):
            found[shown_text(name, 200)] = shown_number(value)
        elif isinstance(value, str):
            found[shown_text(name, 200)] = shown_text(value)
    return found


class _Bounded:
    """Counts what was returned."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def shown(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or value is None or isinstance(value, bool):
            return None if self._left < 0 else value
        if isinstance(value, int | float):
            return shown_number(value)
        if isinstance(value, str):
            return shown_text(value)
        if depth >= MAX_DEPTH:
            return None
        if isinstance(value, Mapping):
            return {shown_text(name, 200): self.shown(each, depth + 1) for name, each in value.items() if self._left > 0}
        if isinstance(value, list | tuple):
            return [self.shown(each, depth + 1) for each in value if self._left > 0]
        return shown_text(value)
