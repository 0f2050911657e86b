"""Validation of a Job's status by the API server: counters never decrease, and a Job ends once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.conditions import is_true
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.rules.problems import not_negative, required
from trainwright.api.rules.webhook import AdmissionRequest, WebhookRule

_COUNTERS = ("active", "ready", "succeeded", "failed", "terminating")
_KEPT = ("succeeded", "failed")
_CONDITIONS = "status.conditions"
_BEFORE = (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet"))
"""The condition that must precede each final condition."""
_APART = (("FailureTarget", "Complete"), ("SuccessCriteriaMet", "Failed"))


def _status(obj: Obj | None) -> dict[str, Any]:
    return (obj or {}).get("status") or {}


def _counters(case: AdmissionRequest) -> Iterator[Problem]:
    for name in _COUNTERS:
        yield from not_negative(_status(case.new).get(name), f"status.{name}")


def _one_end(case: AdmissionRequest) -> Iterator[Problem]:
    if _said(case):
        yield from _both(case.new, "Complete", "Failed")


def _time_of_completion(case: AdmissionRequest) -> Iterator[Problem]:
    complete, completed = is_true(case.new, "Complete"), _status(case.new).get("completionTime")
    if complete and not completed:
        yield required("status.completionTime", "completionTime is required for Complete jobs")
    if completed and not complete:
        yield Problem("status.completionTime", "Invalid value: completionTime cannot be set for non-complete jobs")


def _announced(case: AdmissionRequest) -> Iterator[Problem]:
    if not _said(case):
        return
    for end, before in _BEFORE:
        if is_true(case.new, end) and not is_true(case.new, before):
            yield Problem(_CONDITIONS, f"Invalid value: cannot set {end}=True condition without the {before}=true condition")
    for one, other in _APART:
        yield from _both(case.new, one, other)


def _said(case: AdmissionRequest) -> bool:
    """Whether the conditions have changed: unchanged ones are not validated again."""
    return bool(_status(case.new).get("conditions") != _status(case.old).get("conditions"))


def _both(job: Obj, one: str, other: str) -> Iterator[Problem]:
    if is_true(job, one) and is_true(job, other):
        yield Problem(_CONDITIONS, f"Invalid value: cannot set {one}=True and {other}=true conditions")


def _at_rest(case: AdmissionRequest) -> Iterator[Problem]:
    active = _status(case.new).get("active") or 0
    if active > 0 and (is_true(case.new, "Complete") or is_true(case.new, "Failed")):
        yield Problem("status.active", f"Invalid value: {active}: active>0 is invalid for finished job")


def _forward(case: AdmissionRequest) -> Iterator[Problem]:
    status, before = _status(case.new), _status(case.old)
    for name in _KEPT:
        count = status.get(name) or 0
        if count < (before.get(name) or 0):
            yield Problem(f"status.{name}", f"Invalid value: {count}: cannot decrease the {name} counter")


JOB_STATUS_RULES = (
    WebhookRule("status", "non-negative counters", _counters),
    WebhookRule(_CONDITIONS, "Complete or Failed, not both", _one_end),
    WebhookRule("status.completionTime", "set if and only if the Job is complete", _time_of_completion),
    WebhookRule(_CONDITIONS, "SuccessCriteriaMet or FailureTarget before the final condition", _announced),
    WebhookRule("status.active", "no active pods once the Job has ended", _at_rest),
    WebhookRule("status", "counters never decrease", _forward),
)
