"""What `trainwright doctor` has found: each thing that was looked at, how it stands, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


class Level(enum.StrEnum):
    ok = "ok"
    warning = "warning"
    """A job runs, with less; or nobody can tell."""
    missing = "missing"
    """No job can run like that."""


@dataclass(frozen=True)
class Finding:
    """`check` is one of a fixed set of words, `subject` what was looked at; both are the same in every run."""

    check: str
    subject: str
    level: Level
    message: str
    advice: str = ""
    """What to do; empty where all is well."""

    def as_dict(self) -> dict[str, str]:
        return {**asdict(self), "level": self.level.value}


def ok(check: str, subject: str, message: str) -> Finding:
    return Finding(check, subject, Level.ok, message)


def warning(check: str, subject: str, message: str, advice: str) -> Finding:
    return Finding(check, subject, Level.warning, message, advice)


def missing(check: str, subject: str, message: str, advice: str) -> Finding:
    return Finding(check, subject, Level.missing, message, advice)


def verdict(findings: Iterable[Finding]) -> Level:
    """The worst of them."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.ok)


def as_document(findings: list[Finding], **about: str) -> dict[str, Any]:
    """The JSON form: what was looked at, the verdict, and every finding."""
    return {**about, "verdict": verdict(findings).value, "findings": [finding.as_dict() for finding in findings]}
