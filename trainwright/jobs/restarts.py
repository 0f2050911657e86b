"""How often a job began anew: its JobSet as a whole, and single containers in their pods."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.errors import ApiError
from trainwright.api.kinds import JOBSET
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.pods import pods_of


@dataclass(frozen=True)
class Restarts:
    """How often the JobSet began anew, and how often it may."""

    used: int
    allowed: int


@dataclass(frozen=True)
class Begun:
    """What has begun anew so far; `containers` are those of pods that are still there."""

    jobset: Restarts | None = None
    containers: int = 0


def restarts_of(jobset: Obj) -> Restarts:
    """As a JobSet tells them. Pure."""
    policy = jobset["spec"].get("failurePolicy") or {}
    return Restarts(int((jobset.get("status") or {}).get("restarts") or 0), int(policy.get("maxRestarts") or 0))


def begun_anew(cluster: Cluster, trainjob: Obj) -> Begun:
    """Two requests, for the moment when a job falls back. What may not be read counts as nothing."""
    try:
        jobset = restarts_of(cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob)))
    except ApiError:
        jobset = None
    try:
        statuses = [status for pod in pods_of(cluster, trainjob) for status in _containers(pod)]
    except ApiError:
        statuses = []
    return Begun(jobset, sum(int(status.get("restartCount") or 0) for status in statuses))


def _containers(pod: Obj) -> list[Obj]:
    return (pod.get("status") or {}).get("containerStatuses") or []
