"""Decides whether a Job has finished, and why: the first reason in the order of upstream, with its texts, which JobSet rules match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwright.api.conditions import condition
from trainwright.api.containers import restart_count
from trainwright.api.times import parse_time
from trainwright.controlplane.controllers.job.pod_failure_policy import fails_job
from trainwright.controlplane.controllers.job.pods import phase_of
from trainwright.controlplane.controllers.job.reconcile_state import ReconcileState
from trainwright.controlplane.controllers.job.success_policy import met_success_rule

TARGET = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}
"""The interim condition of each final condition, which is set once no pod is left."""


@dataclass(frozen=True)
class FinishReason:
    end: Literal["Failed", "Complete"]
    reason: str
    message: str


COMPLETED = FinishReason("Complete", "CompletionsReached", "Reached expected number of succeeded pods")


def find_finish_reason(state: ReconcileState) -> FinishReason | None:
    """Return why the Job finishes regardless of its remaining pods, or None."""
    return _interim_condition(state) or _failure(state) or _failure_of_indexes(state) or _success(state)


def seconds_to_deadline(state: ReconcileState) -> float | None:
    deadline, started = state.spec.get("activeDeadlineSeconds"), state.status.get("startTime")
    if deadline is None or not started or state.is_suspended:
        return None  # without a deadline, or its time does not run
    return float(deadline - (state.now - parse_time(started)).total_seconds())


def is_complete(state: ReconcileState, active: int) -> bool:
    """Whether all completions (or one, if not set) have succeeded and no pod is active."""
    completions = state.spec.get("completions")
    return active == 0 and (state.succeeded > 0 if completions is None else state.succeeded >= int(completions))


def _interim_condition(state: ReconcileState) -> FinishReason | None:
    for end in ("Complete", "Failed"):
        entry = condition(state.job, TARGET[end])
        if entry is not None and entry["status"] == "True":
            return FinishReason("Complete" if end == "Complete" else "Failed", entry["reason"], entry["message"])
    return None


def _failure(state: ReconcileState) -> FinishReason | None:
    message = fails_job(state.spec, [pod for pod in state.pods if state.has_failed(pod)])
    if message is not None:
        return FinishReason("Failed", "PodFailurePolicy", message)
    limit = int(state.spec.get("backoffLimit", 6))
    restarts = 0
    if state.spec["template"]["spec"].get("restartPolicy") == "OnFailure":  # else the pods themselves fail, and are counted
        restarts = sum(restart_count(pod) for pod in state.pods if phase_of(pod) in ("Running", "Pending"))
    if state.failed > limit or restarts >= max(limit, 1):  # of restarts, the limits 0 and 1 are equivalent
        return FinishReason("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = seconds_to_deadline(state)
    if left is not None and left <= 0:
        return FinishReason("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _failure_of_indexes(state: ReconcileState) -> FinishReason | None:
    failed, most = state.failed_indexes, state.spec.get("maxFailedIndexes")
    if not failed:
        return None  # no limit per index, or no index has failed
    if most is not None and len(failed) > int(most):
        message = "Job has exceeded the specified maximal number of failed indexes"
        return FinishReason("Failed", "MaxFailedIndexesExceeded", message)
    if len(failed) + len(state.completed) >= int(state.spec["completions"]):
        return FinishReason("Failed", "FailedIndexes", "Job has failed indexes")
    return None


def _success(state: ReconcileState) -> FinishReason | None:
    rule = met_success_rule(state.spec, state.completed) if state.is_indexed else None
    return None if rule is None else FinishReason("Complete", "SuccessPolicy", f"Matched rules at index {rule}")
