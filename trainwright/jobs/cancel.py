"""Stopping a TrainJob: suspend it, so that it can go on later, or delete it - that very one, not a successor of its name."""

from __future__ import annotations

import enum

from trainwright.api import names
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.submit import SUSPENDED_BY_ANNOTATION, suspended_by_us

_MOST_TRIES = 10


class Stopping(enum.StrEnum):
    """What becomes of a job that nobody waits for any more."""

    suspend = "suspend"
    delete = "delete"


def stop_job(cluster: Cluster, trainjob: Obj, how: Stopping) -> str:
    """Stop it that way; returns what became of it, in words. Raises ApiError."""
    if how is Stopping.delete:
        return "it is deleted" if delete_job(cluster, trainjob) else "it is gone"
    return suspended(cluster, trainjob)


def suspended(cluster: Cluster, trainjob: Obj) -> str:
    """Suspend it; returns what became of it, in words."""
    return "it is suspended and goes on when this step runs again" if suspend_job(cluster, trainjob) else "it is gone"


def suspend_job(cluster: Cluster, trainjob: Obj, *, superseded: bool = False) -> bool:
    """Suspend: its pods end, its checkpoints stay, and submitting the same step again resumes it. False when it is gone.

    A `superseded` job is not resumed: the same step submitted again gets a new one. A job that somebody else has
    suspended already stays theirs: submitting its step again does not resume it.
    """
    for _ in range(_MOST_TRIES):
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
            if uid_of(current) != uid_of(trainjob):
                return False
            if patch := _suspending(current, superseded):
                cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob))
        except NotFound:
            return False
        except Conflict:  # its status moved on meanwhile, or it is another job
            continue
        return True
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MOST_TRIES} times while it was being suspended")


def _suspending(current: Obj, superseded: bool) -> Obj:
    """The patch that suspends this version of the job and no other; nothing where there is nothing to do."""
    metadata = current["metadata"]
    marks = {names.SUPERSEDED_ANNOTATION: "true"} if superseded else {}
    spec = {}
    if not current["spec"].get("suspend"):
        spec = {"spec": {"suspend": True}}
        marks[SUSPENDED_BY_ANNOTATION] = suspended_by_us(int(metadata.get("generation") or 0) + 1)
    if not marks:
        return {}
    return {**spec, "metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": marks}}


def delete_job(cluster: Cluster, trainjob: Obj) -> bool:
    """Delete it with everything that it owns. False when it is gone, or another of its name has taken its place."""
    try:
        cluster.delete(TRAINJOB, name_of(trainjob), namespace_of(trainjob), propagation="Foreground", uid=uid_of(trainjob))
    except (NotFound, Conflict):
        return False
    return True
