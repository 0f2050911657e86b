"""Rules that a cluster checks by webhook, one entry each with field, requirement and check, and problems that all rules word alike.

Rules run after the schema check, so they may rely on types, required fields and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.schema.check import as_json, quoted

Lookup = Callable[[str, str, str], Obj | None]
"""Maps `(kind, namespace, name)` to an object, or None."""


@dataclass(frozen=True)
class AdmissionRequest:
    """The input of a rule: the object, the object that it replaces, and a look-up of others."""

    new: Obj
    old: Obj | None = None
    lookup: Lookup | None = None


@dataclass(frozen=True)
class WebhookRule:
    """One rule of a webhook: its field, what it requires, and how violations are found."""

    field: str
    requires: str
    breaches: Callable[[AdmissionRequest], Iterator[Problem]]
    alone: bool = False
    """If it is violated, the rules after it are not checked."""


def violations(rules: tuple[WebhookRule, ...], case: AdmissionRequest) -> list[Problem]:
    """All violations, in the order of the rules."""
    found: list[Problem] = []
    for rule in rules:
        found.extend(rule.breaches(case))
        if found and rule.alone:
            break
    return found


def not_negative(value: Any, where: str) -> Iterator[Problem]:
    if value is not None and value < 0:
        yield Problem(where, f"Invalid value: {value}: must be greater than or equal to 0")


def required(where: str, why: str = "") -> Problem:
    return Problem(where, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def one_of(value: Any, where: str, allowed: tuple[str, ...]) -> Iterator[Problem]:
    if value not in allowed:
        message = f"Unsupported value: {as_json(value)}: supported values: {quoted(allowed)}"
        yield Problem(where, message, "FieldValueNotSupported")
