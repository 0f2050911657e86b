"""What the API server asks of a Job's status: counters that do not run backwards, and an end that is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.conditions import is_true
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.pod_rules import not_negative, required
from trainwright.api.webhook_rules import Case, WebhookRule

_COUNTERS = ("active", "ready", "succeeded", "failed", "terminating")
_KEPT = ("succeeded", "failed")
_CONDITIONS = "status.conditions"
_TOGETHER = (("Complete", "Failed"), ("FailureTarget", "Complete"), ("SuccessCriteriaMet", "Failed"))
_BEFORE = (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet"))
"""What a Job must say before it says that it has ended."""


def _status(obj: Obj | None) -> dict[str, Any]:
    return (obj or {}).get("status") or {}


def _counters(case: Case) -> Iterator[Problem]:
    status, before = _status(case.new), _status(case.old)
    for name in _COUNTERS:
        yield from not_negative(status.get(name), f"status.{name}")
    for name in _KEPT:
        if (status.get(name) or 0) < (before.get(name) or 0):
            shown = status.get(name) or 0
            yield Problem(f"status.{name}", f"Invalid value: {shown}: cannot decrease the {name} counter")


def _conditions(case: Case) -> Iterator[Problem]:
    if _status(case.new).get("conditions") == _status(case.old).get("conditions"):
        return
    job = case.new
    for one, other in _TOGETHER:
        if is_true(job, one) and is_true(job, other):
            yield Problem(_CONDITIONS, f"Invalid value: cannot set {one}=True and {other}=true conditions")
    for end, before in _BEFORE:
        if is_true(job, end) and not is_true(job, before):
            yield Problem(_CONDITIONS, f"Invalid value: cannot set {end}=True condition without the {before}=true condition")


def _end(case: Case) -> Iterator[Problem]:
    status = _status(case.new)
    complete, failed = is_true(case.new, "Complete"), is_true(case.new, "Failed")
    if complete and not status.get("completionTime"):
        yield required("status.completionTime", "completionTime is required for Complete jobs")
    if status.get("completionTime") and not complete:
        yield Problem("status.completionTime", "Invalid value: completionTime cannot be set for non-complete jobs")
    if (complete or failed) and (status.get("active") or 0) > 0:
        yield Problem("status.active", f"Invalid value: {status['active']}: active>0 is invalid for finished job")


JOB_STATUS_RULES = (
    WebhookRule("status", "counters that are not negative and do not run backwards", _counters),
    WebhookRule(_CONDITIONS, "an end that was announced, and only one", _conditions),
    WebhookRule("status", "a time of completion when it is complete, and no pods at its end", _end),
)
