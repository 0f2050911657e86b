"""Problems that the API server words in the same way wherever they are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.schema.check import as_json, quoted


def not_negative(value: Any, where: str) -> Iterator[Problem]:
    if value is not None and value < 0:
        yield Problem(where, f"Invalid value: {value}: must be greater than or equal to 0")


def required(where: str, why: str = "") -> Problem:
    return Problem(where, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def one_of(value: Any, where: str, allowed: tuple[str, ...]) -> Iterator[Problem]:
    if value not in allowed:
        message = f"Unsupported value: {as_json(value)}: supported values: {quoted(allowed)}"
        yield Problem(where, message, "FieldValueNotSupported")
