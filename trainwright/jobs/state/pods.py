"""The pods and Jobs of a TrainJob, found by the labels of its JobSet, and what they say: restarts, failures, and what a training
starts from.

A Job says that it fails while its pods are still being stopped. Without permission to read them a client waits on, and asks again
after a minute: a permission may be granted while it waits.

What a training starts from is the termination message of an init container of its first rank, which everybody may read who may read
the pod.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.integers import parse_count
from trainwright.api.kinds import JOB, JOBSET, POD
from trainwright.api.objects import Obj, is_controlled_by, labels_of, name_of, named, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.text.foreign_texts import one_line

NOT_ITS_JOBSET = "the JobSet of its name belongs to another job; delete one of them, or give the TrainJob another name"
DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Reason of a Job that was ended at its activeDeadlineSeconds."""
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
NOT_KNOWN = "what is not known"
ITS_PROGRAM = f"what its program finds: its pods have no init container {names.RESUME_POINT!r}"
_MAX_TEXT = 1000
ASKED_AGAIN_SECONDS = 60.0
"""After this time what was refused is asked for again."""


class Place(NamedTuple):
    """Step, index of the Job in it, and completion index: what a replacement has in common with the pod."""

    step: str
    job: int
    completion_index: int

    def __str__(self) -> str:
        return f"{self.step}-{self.job}-{self.completion_index}"


def pods_of(cluster: Cluster, trainjob: Obj, step: str = "") -> list[Obj]:
    """Return the pods of all steps, or of one replicated job, sorted by step, index and age. Raises ApiError."""
    selector = f"{names.JOBSET_NAME_LABEL}={name_of(trainjob)}"
    if step:
        selector += f",{names.REPLICATED_JOB_LABEL}={step}"
    pods = cluster.list(POD, namespace_of(trainjob), label_selector=selector).items
    return sorted(pods, key=lambda pod: (step_of(pod), index_of(pod), pod["metadata"].get("creationTimestamp", ""), name_of(pod)))


def is_jobset_of(jobset: Obj, trainjob: Obj) -> bool:
    """Whether a JobSet belongs to the TrainJob, or represents it in jobset mode, and does not only have its name. Pure."""
    return uid_of(jobset) == uid_of(trainjob) or is_controlled_by(jobset, trainjob)


def check_own_pods(cluster: Cluster, trainjob: Obj) -> None:
    """Raise NotFound if a JobSet of another job has the TrainJob's name: all pods with its labels are that job's. Raises ApiError."""
    try:
        jobset = cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob))
    except (NotFound, Forbidden):
        return
    if not is_jobset_of(jobset, trainjob):
        raise NotFound(f"TrainJob {name_of(trainjob)} has no pods: {NOT_ITS_JOBSET}")


def step_of(obj: Obj) -> str:
    """Return the replicated job that a pod or a Job belongs to."""
    return labels_of(obj).get(names.REPLICATED_JOB_LABEL, "")


def job_index_of(obj: Obj) -> int:
    """Return the index of a Job, or of a pod's Job, in its replicated job."""
    return parse_count(labels_of(obj).get(names.JOB_INDEX_LABEL, "")) or 0


def index_of(pod: Obj) -> int:
    return parse_count(labels_of(pod).get(names.COMPLETION_INDEX, "")) or 0


def place_of(pod: Obj) -> Place:
    """Return the place of a pod in its training."""
    return Place(step_of(pod), job_index_of(pod), index_of(pod))


def container_of_step(pod: Obj) -> str:
    """Return the container that runs the step, and whose log is that of the pod."""
    containers = [str(container["name"]) for container in pod["spec"]["containers"]]
    return step_of(pod) if step_of(pod) in containers else next(iter(containers), "")


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


@dataclass(frozen=True)
class Restarts:
    """Restarts of the JobSet so far, and its `maxRestarts`."""

    used: int
    allowed: int


@dataclass(frozen=True)
class RestartCounts:
    """Restarts so far; `containers` counts only pods that still exist."""

    jobset: Restarts | None = None
    containers: int = 0


def restarts_of(jobset: Obj) -> Restarts:
    """Return the restarts of a JobSet. Pure."""
    policy = jobset["spec"].get("failurePolicy") or {}
    return Restarts(int((jobset.get("status") or {}).get("restarts") or 0), int(policy.get("maxRestarts") or 0))


def read_restarts(cluster: Cluster, trainjob: Obj) -> Restarts | None:
    """Return the restarts of the job's JobSet; None if it cannot be read."""
    try:
        return restarts_of(cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob)))
    except ApiError:
        return None


def started_from(pods: Sequence[Obj]) -> str:
    """Return what the newest pod of the first rank starts from; "" while it is not known. Pure."""
    deciding = [pod for pod in pods if index_of(pod) == 0 and _init_container(pod.get("spec") or {}, "initContainers")]
    for pod in sorted(deciding, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""), reverse=True):
        status = _init_container(pod.get("status") or {}, "initContainerStatuses") or {}
        ended = (status.get("state") or {}).get("terminated") or {}
        if not ended.get("exitCode", 1) and (text := one_line(ended.get("message"))):
            return text[:_MAX_TEXT]
    is_training = any(index_of(pod) == 0 and _has_trained(pod) for pod in pods)
    return "" if deciding or not is_training else ITS_PROGRAM


def _init_container(part: Obj, key: str) -> Obj | None:
    return named(part.get(key), names.RESUME_POINT)


def _has_trained(pod: Obj) -> bool:
    """Whether it is a pod of the training, not of an initializer, and its containers have started."""
    is_ancestor = (pod["metadata"].get("labels") or {}).get(names.REPLICATED_JOB_LABEL) not in names.INITIALIZERS
    return is_ancestor and (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def read_started_from(cluster: Cluster, trainjob: Obj) -> str:
    """Return what a job has started from, from its pods, or why that is not known."""
    try:
        pods = pods_of(cluster, trainjob)
    except ApiError as error:  # it only describes: those without the right to read pods go without it
        return f"{NOT_KNOWN}: its pods could not be read: {one_line(error.message)}"[:_MAX_TEXT]
    return started_from(pods) or f"{NOT_KNOWN}: its pods {'do not say it' if pods else 'are gone'}"


class Denials:
    """The resources that were refused within the last minute. Not thread-safe."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, what: str) -> None:
        """Note that `what` was refused just now."""
        self._until[what] = time.monotonic() + ASKED_AGAIN_SECONDS

    def __contains__(self, what: str) -> bool:
        return time.monotonic() < self._until.get(what, float("-inf"))
