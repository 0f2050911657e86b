"""Rules that a cluster checks by webhook: one entry each, with its field, its requirement and its check.

Rules run after the schema check, so they may rely on types, required fields and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj

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
