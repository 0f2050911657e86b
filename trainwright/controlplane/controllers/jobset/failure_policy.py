"""Evaluates the failure policy of a JobSet: the first matching rule applies, else a restart within `maxRestarts`.

A rule may search the message of a failed Job for a regular expression, in linear time as JobSet does. Patterns come from anyone who
may create a JobSet. Python's `re` takes exponential time for some, and stops the whole process meanwhile. RE2 is the library that Go's
syntax comes from.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import Any, Literal

import re2

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.controllers.jobset.children import replicated_job_of

FAIL, RESTART = "FailJobSet", "RestartJobSet"
_UNCOUNTED = "AndIgnoreMaxRestarts"
_MAX_STEPS = 2_000_000
"""Bytes of the message times instructions of the pattern: 10 to 20 ms. A message of 300 bytes allows 6,600 instructions."""
_MAX_PROGRAM_BYTES = 1024 * 1024
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailureAction:
    """The action for `job`; `counted` restarts count towards the maximum, `rule` is the reason of the condition."""

    outcome: Literal["fail", "restart"]
    job: Obj
    reason: str
    message: str
    rule: str = ""
    counted: bool = True


def failure_action(jobset: Obj, failed: list[Obj]) -> FailureAction:
    """Return the action for the failed Jobs (at least one) of the current attempt."""
    policy = jobset["spec"].get("failurePolicy")
    first = min(failed, key=_failed_at)
    if policy is None:
        return _fail(first, "FailedJobs", "jobset failed due to one or more job failures")
    rule, job = _matching(policy, failed) or ({"name": "", "action": RESTART}, first)
    action = rule["action"]
    if action == FAIL:
        return _fail(job, "FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action")
    counted = not action.endswith(_UNCOUNTED)
    used = int((jobset.get("status") or {}).get("restartsCountTowardsMax") or 0)
    if counted and used >= int(policy.get("maxRestarts") or 0):
        return _fail(job, "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
    message = f"applying {action} failure policy action (first failed job: {name_of(job)})"
    named = f"FailurePolicy_{rule['name']}" if rule["name"] else "DefaultFailurePolicy"
    return FailureAction("restart", job, f"{action}FailurePolicyAction", message, named, counted)


def _failed_at(job: Obj) -> tuple[str, str]:
    return (condition(job, "Failed") or {}).get("lastTransitionTime", ""), name_of(job)


def _fail(job: Obj, reason: str, message: str) -> FailureAction:
    return FailureAction("fail", job, reason, f"{message} (first failed job: {name_of(job)})")


def _matching(policy: Obj, failed: list[Obj]) -> tuple[Obj, Obj] | None:
    """The first rule, in order, that any failed Job matches, with the earliest such Job."""
    for rule in policy.get("rules") or []:
        matching = [job for job in failed if _matches(rule, job)]
        if matching:
            return rule, min(matching, key=_failed_at)
    return None


def _matches(rule: Obj, job: Obj) -> bool:
    failed = condition(job, "Failed") or {}
    targets, reasons = rule.get("targetReplicatedJobs"), rule.get("onJobFailureReasons")
    patterns = rule.get("onJobFailureMessagePatterns")
    return (
        (not targets or replicated_job_of(job) in targets)
        and (not reasons or failed.get("reason") in reasons)
        and (not patterns or any(is_found(pattern, failed.get("message", "")) for pattern in patterns))
    )


def is_found(pattern: str, message: str) -> bool:
    """Whether the pattern matches anywhere in the message.

    An invalid pattern matches nothing, since admission does not check patterns, and neither does one that is too large for this
    message. Both are logged.
    """
    expression = _compiled(pattern)
    if expression is None:
        return False
    text = message.encode("utf-8", "replace")
    if expression.programsize * len(text) > _MAX_STEPS:
        log.warning("event=message_pattern_ignored pattern=%.80r reason=%r", pattern, "too large for a message of this length")
        return False
    return expression.search(text) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM_BYTES
    try:
        return re2.compile(pattern.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        log.warning("event=message_pattern_invalid pattern=%.80r reason=%.200r", pattern, shown)
        return None
