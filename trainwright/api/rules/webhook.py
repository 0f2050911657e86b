"""The language of rules that a cluster asks by webhook: one entry for each, found by its field and read in one line.

A rule is asked after the schema has found the object well-formed, so it may rely on types, required fields and defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj

Lookup = Callable[[str, str, str], Obj | None]
"""`(kind, namespace, name)` to an object, or None."""


@dataclass(frozen=True)
class AdmissionRequest:
    """What a rule is asked about: the object, what it replaces, and how to find others."""

    new: Obj
    old: Obj | None = None
    lookup: Lookup | None = None


@dataclass(frozen=True)
class WebhookRule:
    """One rule of a webhook: where it stands, what it demands, and how its breaches are found."""

    field: str
    demands: str
    breaches: Callable[[AdmissionRequest], Iterator[Problem]]
    alone: bool = False
    """Once it is broken, the rules after it are not asked."""


def violations(rules: tuple[WebhookRule, ...], case: AdmissionRequest) -> list[Problem]:
    """Every breach, in the order of the rules."""
    found: list[Problem] = []
    for rule in rules:
        found.extend(rule.breaches(case))
        if found and rule.alone:
            break
    return found
