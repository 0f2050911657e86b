"""How long a training pod held its node and GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.times import parse_time
from trainwright.jobs.state.pods import container_states, step_of
from trainwright.materialize.resources import gpu_count

_HOUR = 3600.0


@dataclass(frozen=True)
class PodHours:
    """Hours for which nodes, and GPUs on them, were allocated."""

    nodes: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: PodHours) -> PodHours:
        return PodHours(self.nodes + other.nodes, self.gpus + other.gpus)


def hours_of(pod: Obj, until: float, deletion_requested: str = "") -> PodHours:
    """Return the hours of a training pod, from its start to the end of its last container, its deletion, or `until`.

    Initializers count nothing: they need no GPU, and run before the training.
    """
    started = str((pod.get("status") or {}).get("startTime") or "")
    if not started or step_of(pod) in names.INITIALIZERS:
        return PodHours()
    begin = parse_time(started).timestamp()
    hours = max(0.0, _end(pod, begin, until, deletion_requested) - begin) / _HOUR
    gpus = sum(gpu_count(container.get("resources") or {}) for container in pod["spec"].get("containers") or [])
    return PodHours(hours, hours * gpus)


def _end(pod: Obj, begin: float, until: float, deletion_requested: str) -> float:
    """Return when the pod released its resources: in a pod that has ended, containers may never have started."""
    status = pod["status"]
    ended = [parse_time(text).timestamp() for entry in container_states(pod) if (text := _ended(entry))]
    if status.get("phase") in ("Succeeded", "Failed") or all(map(_ended, status.get("containerStatuses") or [{}])):
        return max(ended, default=begin)
    deleted = deletion_requested or pod["metadata"].get("deletionTimestamp")
    return min(until, parse_time(str(deleted)).timestamp()) if deleted else until


def _ended(container: Obj) -> str:
    return str(((container.get("state") or {}).get("terminated") or {}).get("finishedAt") or "")
