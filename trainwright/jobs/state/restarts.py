"""Restart counts of a job: of its JobSet, and of containers in their pods."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import container_states


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


def container_restarts(pods: list[Obj]) -> int:
    """Return the restarts of all containers of these pods. Pure."""
    return sum(int(status.get("restartCount") or 0) for pod in pods for status in container_states(pod))
