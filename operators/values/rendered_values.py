"""Parses parameters of operators that a template may have rendered to text."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

_FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}


def parse_flag(name: str, value: Any) -> bool:
    """Return a boolean; text is true, false, 1, 0 or empty. Raises ValueError naming the parameter."""
    if isinstance(value, bool):
        return value
    text = "" if value is None else str(value).strip().lower()
    if text not in _FLAGS:
        raise ValueError(f"{name}: {value!r}: expected true or false")
    return _FLAGS[text]


def parse_number(name: str, value: Any) -> float:
    """Return a finite number that is not negative; empty text is 0, and a `timedelta` is in seconds.

    Raises ValueError naming the parameter.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    try:
        number = float(str(value).strip() or 0) if value is not None else 0.0
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name}: {value!r}: expected a number that is not negative")
    return number


def parse_object(name: str, value: Any) -> dict[str, Any]:
    """Return an object, from JSON or YAML if it is text; empty without one. Raises ValueError naming the parameter."""
    found = _parsed(name, value) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{name}: expected an object, found {type(found).__name__}")
    return found


def parse_list(name: str, value: Any) -> list[Any]:
    """Return a list, from JSON or YAML if it is text; one object is a list of it. Raises ValueError naming the parameter."""
    found = _parsed(name, value) or []
    if isinstance(found, dict):  # what XCom has of a task that was mapped over one value
        found = [found]
    if not isinstance(found, list):
        raise ValueError(f"{name}: expected a list, found {type(found).__name__}")
    return found


def parse_texts(name: str, value: Any) -> list[str]:
    """Return a list of texts, from JSON or YAML if it is text; empty without one. Raises ValueError naming the parameter."""
    found = _parsed(name, value) or []
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise ValueError(f"{name}: expected a list of texts")
    return found


def _parsed(name: str, value: Any) -> Any:
    from trainwright.jobs.request.setting_values import parse_structure

    try:
        return parse_structure(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
