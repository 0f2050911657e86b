"""What a training starts from, as the init container of its first rank has found it out: a checkpoint, an export, or nothing.

It is the termination message of that container, which everybody may read who may read the pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api import names
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, named
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import index_of, pods_of
from trainwright.text.foreign_texts import one_line

NOT_KNOWN = "what is not known"
ITS_PROGRAM = f"what its program finds: its pods have no init container {names.RESUME_POINT!r}"
_MAX_TEXT = 1000


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


def read_started_from(cluster: Cluster, trainjob: Obj) -> str:
    """Return what a job has started from, from its pods, or why that is not known."""
    try:
        pods = pods_of(cluster, trainjob)
    except ApiError as error:  # it only describes: those without the right to read pods go without it
        return f"{NOT_KNOWN}: its pods could not be read: {one_line(error.message)}"[:_MAX_TEXT]
    return started_from(pods) or f"{NOT_KNOWN}: its pods {'do not say it' if pods else 'are gone'}"


def _init_container(part: Obj, key: str) -> Obj | None:
    return named(part.get(key), names.RESUME_POINT)


def _has_trained(pod: Obj) -> bool:
    """Whether it is a pod of the training, not of an initializer, and its containers have started."""
    is_ancestor = (pod["metadata"].get("labels") or {}).get(names.REPLICATED_JOB_LABEL) not in names.INITIALIZERS
    return is_ancestor and (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")
