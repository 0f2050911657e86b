"""Findings of `trainwright doctor`: the checked subject, its state, and advice.

For a missing permission that is the rule, its role, and the command that prints all rules.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trainwright.jobs.submit.rbac import CALLS_OF, ApiCall
from trainwright.jobs.submit.rbac_manifests import role_of, rule_line
from trainwright.submission.jobs_client import Mode


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


def calls_of(mode: Mode) -> tuple[ApiCall, ...]:
    """Return the API calls of a job in a submission mode, without those that are not to be granted for it."""
    return tuple(call for call in CALLS_OF[mode] if call.is_advised)


def rule_advice(call: ApiCall, namespace: str, mode: Mode = Mode.trainjob) -> str:
    """Return the rule that grants a call, and the command that prints it with all others if it does."""
    advice = f"add to the rules of {role_of(call, namespace)}: {rule_line(call)}"
    is_printed = call.is_granted and call in calls_of(mode)
    return f"{advice}; {print_command(namespace, mode)} prints it with all others" if is_printed else advice


def print_command(namespace: str, mode: Mode = Mode.trainjob) -> str:
    """Return the command that prints the manifests for a namespace."""
    options = " --mode jobset" if mode is Mode.jobset else ""
    return f"`trainwright rbac --namespace {namespace} --service-account NAME{options}`"
