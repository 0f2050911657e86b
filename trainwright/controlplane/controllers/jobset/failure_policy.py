"""What happens when a Job of a JobSet fails: the first rule that matches decides, else a restart within `maxRestarts`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.controllers.jobset.children import replicated_job_of

RESTART, RESTART_UNCOUNTED, FAIL = "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "FailJobSet"


@dataclass(frozen=True)
class Verdict:
    """`fail` with a reason, or `restart`, counted towards the maximum or not; `job` is the one that is named."""

    outcome: Literal["fail", "restart"]
    reason: str
    message: str
    counted: bool = True


def verdict(jobset: Obj, failed: list[Obj]) -> Verdict:
    """What the failure policy makes of the failed Jobs (at least one) of the current attempt."""
    policy = jobset["spec"].get("failurePolicy")
    first = min(failed, key=_failed_at)
    if policy is None:
        return Verdict(
            "fail", "FailedJobs", f"jobset failed due to one or more job failures (first failed job: {name_of(first)})"
        )
    rule, job = _matching(policy, failed) or ({"name": "", "action": RESTART}, first)
    action = rule["action"]
    if action == FAIL:
        message = f"applying FailJobSet failure policy action (first failed job: {name_of(job)})"
        return Verdict("fail", "FailJobSetFailurePolicyAction", message)
    counted = action != RESTART_UNCOUNTED
    used = (jobset.get("status") or {}).get("restartsCountTowardsMax") or 0
    if counted and used >= (policy.get("maxRestarts") or 0):
        message = f"jobset failed due to reaching max number of restarts (first failed job: {name_of(job)})"
        return Verdict("fail", "ReachedMaxRestarts", message)
    reason = f"FailurePolicy_{rule['name']}" if rule["name"] else "DefaultFailurePolicy"
    return Verdict("restart", reason, f"applying {action} failure policy action (first failed job: {name_of(job)})", counted)


def _matching(policy: Obj, failed: list[Obj]) -> tuple[Obj, Obj] | None:
    """The first rule, in order, that any failed Job matches, with the earliest such Job."""
    for rule in policy.get("rules") or []:
        matching = [job for job in failed if _matches(rule, job)]
        if matching:
            return rule, min(matching, key=_failed_at)
    return None


def _matches(rule: Obj, job: Obj) -> bool:
    verdict = condition(job, "Failed") or {}
    targets, reasons = rule.get("targetReplicatedJobs"), rule.get("onJobFailureReasons")
    patterns = rule.get("onJobFailureMessagePatterns")
    return (
        (not targets or replicated_job_of(job) in targets)
        and (not reasons or verdict.get("reason") in reasons)
        and (not patterns or any(re.search(pattern, verdict.get("message", "")) for pattern in patterns))
    )


def _failed_at(job: Obj) -> tuple[str, str]:
    return (condition(job, "Failed") or {}).get("lastTransitionTime", ""), name_of(job)
