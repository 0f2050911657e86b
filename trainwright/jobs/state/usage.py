"""Node-hours and GPU-hours of a job, computed from its pods. Pure.

Pods that were deleted before they were observed do not count, so the figures are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.times import parse_time
from trainwright.jobs.state.pod_history import container_states
from trainwright.jobs.state.pods import step_of
from trainwright.materialize.resources import gpu_count

_HOUR = 3600.0


@dataclass(frozen=True)
class Usage:
    """Hours for which training nodes, and GPUs on them, were allocated."""

    node_hours: float = 0.0
    gpu_hours: float = 0.0


NO_USAGE = Usage()


def usage_of(pods: list[Obj], now: datetime) -> Usage:
    """Return the usage of the training pods, from their start to the end of their last container, or to `now`."""
    nodes = gpus = 0.0
    for pod in pods:
        if step_of(pod) in names.INITIALIZERS:
            continue
        hours = _hours(pod, now)
        nodes += hours
        gpus += hours * sum(gpu_count(c.get("resources") or {}) for c in pod["spec"].get("containers") or [])
    return Usage(nodes, gpus)


def _hours(pod: Obj, now: datetime) -> float:
    status = pod.get("status") or {}
    if not status.get("startTime"):
        return 0.0
    started = parse_time(str(status["startTime"]))
    return max(0.0, (_end(pod, started, now) - started).total_seconds()) / _HOUR


def _end(pod: Obj, started: datetime, now: datetime) -> datetime:
    """Return when the pod released its resources: in a pod that has ended, containers may never have started."""
    status = pod["status"]
    ended = [parse_time(text) for entry in container_states(pod) if (text := _ended(entry))]
    has_ended = status.get("phase") in ("Succeeded", "Failed") or all(map(_ended, status.get("containerStatuses") or [{}]))
    if has_ended:
        return max(ended, default=started)
    deleted = pod["metadata"].get("deletionTimestamp")
    return min(now, parse_time(str(deleted))) if deleted else now


def _ended(container: Obj) -> str:
    return str(((container.get("state") or {}).get("terminated") or {}).get("finishedAt") or "")
