"""Findings of `trainwright doctor`: the checked subject, its state, and advice."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


class Level(enum.StrEnum):
    ok = "ok"
    warning = "warning"
    """A job runs with limitations, or the check was not possible."""
    missing = "missing"
    """A job cannot run."""


@dataclass(frozen=True)
class Finding:
    """`check` is the name of the check, `subject` what was checked; both are stable between runs."""

    check: str
    subject: str
    level: Level
    message: str
    advice: str = ""
    """How to fix it; empty if there is no problem."""

    def as_dict(self) -> dict[str, str]:
        return {**asdict(self), "level": self.level.value}


def ok(check: str, subject: str, message: str) -> Finding:
    return Finding(check, subject, Level.ok, message)


def warning(check: str, subject: str, message: str, advice: str) -> Finding:
    return Finding(check, subject, Level.warning, message, advice)


def missing(check: str, subject: str, message: str, advice: str) -> Finding:
    return Finding(check, subject, Level.missing, message, advice)


def overall_level(findings: Iterable[Finding]) -> Level:
    """Return the worst level."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.ok)


def as_document(findings: list[Finding], **about: str) -> dict[str, Any]:
    """Return the findings as a JSON document."""
    return {**about, "verdict": overall_level(findings).value, "findings": [finding.as_dict() for finding in findings]}
