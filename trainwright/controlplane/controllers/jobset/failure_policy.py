"""Evaluates the failure policy of a JobSet: the first matching rule applies, else a restart within `maxRestarts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.controllers.jobset.children import replicated_job_of
from trainwright.controlplane.controllers.jobset.message_patterns import is_found

FAIL, RESTART = "FailJobSet", "RestartJobSet"
_UNCOUNTED = "AndIgnoreMaxRestarts"


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


def _failed_at(job: Obj) -> tuple[str, str]:
    return (condition(job, "Failed") or {}).get("lastTransitionTime", ""), name_of(job)
