"""The pods of a TrainJob, found by the labels of its JobSet."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.integers import parse_count
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of
from trainwright.cluster.protocol import Cluster


def pods_of(cluster: Cluster, trainjob: Obj, step: str = "") -> list[Obj]:
    """Return the pods of all steps, or of one replicated job, sorted by step, index and age. Raises ApiError."""
    selector = f"{names.JOBSET_NAME_LABEL}={name_of(trainjob)}"
    if step:
        selector += f",{names.REPLICATED_JOB_LABEL}={step}"
    pods = cluster.list(POD, namespace_of(trainjob), label_selector=selector).items
    return sorted(pods, key=lambda pod: (step_of(pod), index_of(pod), pod["metadata"].get("creationTimestamp", ""), name_of(pod)))


def step_of(pod: Obj) -> str:
    return labels_of(pod).get(names.REPLICATED_JOB_LABEL, "")


def index_of(pod: Obj) -> int:
    return parse_count(labels_of(pod).get(names.COMPLETION_INDEX, "")) or 0
