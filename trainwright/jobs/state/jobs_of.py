"""The Jobs of a TrainJob, and how they are failing. A Job says so while its pods are still being stopped."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.kinds import JOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Reason of a Job that was ended at its activeDeadlineSeconds."""
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"


@dataclass(frozen=True)
class FailingJob:
    """A Job that has failed, or that fails as soon as its pods have ended; `since` is an RFC 3339 time."""

    name: str
    reason: str
    message: str
    since: str

    def as_event(self) -> Obj:
        """Return the condition in the form of the event that the Job controller writes for it."""
        about = {"kind": "Job", "name": self.name}
        return {"reason": self.reason, "message": self.message, "involvedObject": about, "lastTimestamp": self.since}

    def __str__(self) -> str:
        deadline = " (activeDeadlineSeconds)" if self.reason == DEADLINE_EXCEEDED else ""
        return f"{self.name}: {self.reason}{deadline}: {self.message}"


def jobs_of(cluster: Cluster, trainjob: Obj) -> list[Obj]:
    """Return the Jobs of a TrainJob's JobSet. Raises ApiError."""
    selector = f"{names.JOBSET_NAME_LABEL}={name_of(trainjob)}"
    return cluster.list(JOB, namespace_of(trainjob), label_selector=selector).items


def failing_jobs(jobs: list[Obj]) -> list[FailingJob]:
    """Return the Jobs that have failed or are failing, the first one first. Pure."""
    found = []
    for job in jobs:
        for kind in ("FailureTarget", "Failed"):
            entry = condition(job, kind)
            if entry is not None and entry.get("status") == "True":
                since = str(entry.get("lastTransitionTime") or "")
                found.append(FailingJob(name_of(job), str(entry.get("reason")), str(entry.get("message")), since))
                break
    return sorted(found, key=lambda failing: failing.since)
