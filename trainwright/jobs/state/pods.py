"""The pods of a TrainJob, found by the labels of its JobSet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainwright.api import names
from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.integers import parse_count
from trainwright.api.kinds import JOBSET, POD
from trainwright.api.objects import Obj, is_controlled_by, labels_of, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster


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


NOT_ITS_JOBSET = "the JobSet of its name belongs to another job; delete one of them, or give the TrainJob another name"


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


def container_states(pod: Obj) -> Iterator[Obj]:
    """Yield the states of the init containers, then those of the containers."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []
