"""Limits how many pods one object may ask for: a JobSet of two billion replicas would fill the memory with its Jobs.

A real cluster stores such an object, too, and is protected by quotas at best.
"""

from __future__ import annotations

from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOB, JOBSET, TRAINING_RUNTIME, TRAINJOB, Kind
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error

MOST_PODS = 10_000
_RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
_KINDS = {kind.kind: kind for kind in (JOB, JOBSET, TRAINJOB, *_RUNTIMES)}


def check_pod_count(new: Obj, old: Obj | None) -> None:
    """Raises Forbidden for an admitted object that asks for more than MOST_PODS, unless the stored one already does."""
    kind = _KINDS.get(str(new.get("kind")))
    if kind is None:
        return
    wanted = _pods(kind, new)
    if wanted > MOST_PODS and (old is None or wanted > _pods(kind, old)):
        raise forbidden_error(kind, name_of(new), f"it asks for {wanted} pods, and this cluster makes at most {MOST_PODS} for it")


def _pods(kind: Kind, obj: Obj) -> int:
    """The pods that run at once, and at least one for each Job."""
    spec = obj.get("spec") or {}
    if kind == JOBSET:
        return _of_jobset(spec)
    if kind in _RUNTIMES:
        nodes = _whole((spec.get("mlPolicy") or {}).get("numNodes"), 1)
        return max(nodes, _of_jobset((spec.get("template") or {}).get("spec") or {}))
    if kind == TRAINJOB:
        return _whole((spec.get("trainer") or {}).get("numNodes"), 1)
    return _of_job(spec)


def _of_jobset(spec: Obj) -> int:
    jobs = spec.get("replicatedJobs") or []
    return sum(_whole(job.get("replicas"), 1) * max(_of_job((job.get("template") or {}).get("spec") or {}), 1) for job in jobs)


def _of_job(spec: Obj) -> int:
    return _whole(spec.get("parallelism"), 1)


def _whole(value: int | None, default: int) -> int:
    return default if value is None else value
