"""Is a Job over, and why? The first reason that holds, in the order of the real controller; JobSet rules match its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj
from trainwright.api.times import parse_time
from trainwright.controlplane.controllers.job.look import Look
from trainwright.controlplane.controllers.job.pod_failure_policy import fails_job
from trainwright.controlplane.controllers.job.pods import phase_of, restarts_of
from trainwright.controlplane.controllers.job.success_policy import met_rule

TARGET = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}
"""Each end is announced by an interim condition, and stated once no pod is left."""


@dataclass(frozen=True)
class Verdict:
    end: Literal["Failed", "Complete"]
    reason: str
    message: str


COMPLETED = Verdict("Complete", "CompletionsReached", "Reached expected number of succeeded pods")


def verdict(look: Look) -> Verdict | None:
    """What ends the Job whatever its pods do next; None while it goes on."""
    return _announced(look) or _failure(look) or _failure_of_indexes(look) or _success(look)


def seconds_to_deadline(look: Look) -> float | None:
    deadline, started = look.spec.get("activeDeadlineSeconds"), look.status.get("startTime")
    if deadline is None or not started or look.suspended:
        return None
    return float(deadline - (look.now - parse_time(started)).total_seconds())


def is_complete(look: Look, active: int) -> bool:
    """All wanted completions are there (one, where none are named) and no pod runs any more."""
    completions = look.spec.get("completions")
    return active == 0 and (look.succeeded > 0 if completions is None else look.succeeded >= int(completions))


def _announced(look: Look) -> Verdict | None:
    for end in ("Complete", "Failed"):
        entry = condition(look.job, TARGET[end])
        if entry is not None and entry["status"] == "True":
            return Verdict("Complete" if end == "Complete" else "Failed", entry["reason"], entry["message"])
    return None


def _failure(look: Look) -> Verdict | None:
    message = fails_job(look.spec, [pod for pod in look.pods if look.has_failed(pod)])
    if message is not None:
        return Verdict("Failed", "PodFailurePolicy", message)
    limit = int(look.spec.get("backoffLimit", 6))
    if look.failed > limit or _restarts_exceed(look.spec, limit, look.pods):
        return Verdict("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = seconds_to_deadline(look)
    if left is not None and left <= 0:
        return Verdict("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _failure_of_indexes(look: Look) -> Verdict | None:
    failed, most = look.failed_indexes, look.spec.get("maxFailedIndexes")
    if not failed:
        return None
    if most is not None and len(failed) > int(most):
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Verdict("Failed", "MaxFailedIndexesExceeded", message)
    if len(failed) + len(look.completed) >= int(look.spec["completions"]):
        return Verdict("Failed", "FailedIndexes", "Job has failed indexes")
    return None


def _success(look: Look) -> Verdict | None:
    rule = met_rule(look.spec, look.completed) if look.indexed else None
    return None if rule is None else Verdict("Complete", "SuccessPolicy", f"Matched rules at index {rule}")


def _restarts_exceed(spec: Obj, limit: int, pods: list[Obj]) -> bool:
    """OnFailure: container restarts count as well; the limits 0 and 1 act the same."""
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(restarts_of(pod) for pod in pods if phase_of(pod) in ("Running", "Pending"))
    return restarts > 0 if limit == 0 else restarts >= limit
