"""Restart counts of a job: of its JobSet, and of containers in their pods."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import pods_of


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


def count_restarts(cluster: Cluster, trainjob: Obj) -> RestartCounts:
    """Read the restart counts in two requests. A count that cannot be read is None or 0."""
    try:
        jobset = restarts_of(cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob)))
    except ApiError:
        jobset = None
    try:
        statuses = [status for pod in pods_of(cluster, trainjob) for status in _containers(pod)]
    except ApiError:
        statuses = []
    return RestartCounts(jobset, sum(int(status.get("restartCount") or 0) for status in statuses))


def _containers(pod: Obj) -> list[Obj]:
    return (pod.get("status") or {}).get("containerStatuses") or []
