"""Has a Job failed, and why? Pure functions over the Job, its pods and its counts; the words are those that JobSet rules match."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainwright.api.objects import Obj
from trainwright.api.times import parse_time
from trainwright.controlplane.controllers.job.pods import is_active, restarts_of

FIRST_BACKOFF_SECONDS = 10.0
MOST_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True)
class Failure:
    reason: str
    message: str


def failure_of(job: Obj, status: Obj, pods: list[Obj], now: datetime) -> Failure | None:
    """The first reason for which the Job has failed, in the order of the real controller."""
    spec = job["spec"]
    if _beyond_backoff(spec, status, pods):
        return Failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = spec.get("activeDeadlineSeconds")
    started = status.get("startTime")
    over = deadline is not None and started and (now - parse_time(started)).total_seconds() >= deadline
    if over and not spec.get("suspend"):
        return Failure("DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def seconds_to_deadline(job: Obj, status: Obj, now: datetime) -> float | None:
    deadline, started = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
    if deadline is None or not started or job["spec"].get("suspend"):
        return None
    return max(float(deadline - (now - parse_time(started)).total_seconds()), 0.0)


def backoff_seconds(failures: int) -> float:
    """How long after the last failure a replacement may start: 10 s doubling, at most 10 minutes."""
    if failures <= 0:
        return 0.0
    return float(min(FIRST_BACKOFF_SECONDS * 2 ** (min(failures, 20) - 1), MOST_BACKOFF_SECONDS))


def _beyond_backoff(spec: Obj, status: Obj, pods: list[Obj]) -> bool:
    """Never: more failed pods than the limit. OnFailure: container restarts count; limits 0 and 1 act the same."""
    limit = int(spec.get("backoffLimit", 6))
    if (status.get("failed") or 0) > limit:
        return True
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(restarts_of(pod) for pod in pods if is_active(pod))
    return restarts > 0 if limit == 0 else restarts >= limit
