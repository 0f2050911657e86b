"""Stopping a TrainJob: suspend it, so that it can go on later, or delete it - that very one, not a successor of its name."""

from __future__ import annotations

from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.submit import SUSPENDED_BY_ANNOTATION, suspended_by_us

_MOST_TRIES = 10


def suspend_job(cluster: Cluster, trainjob: Obj) -> bool:
    """Suspend: its pods end, its checkpoints stay, and submitting the same step again resumes it. False when it is gone.

    A job that somebody else has suspended already stays theirs: submitting its step again does not resume it.
    """
    for _ in range(_MOST_TRIES):
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
            if uid_of(current) != uid_of(trainjob):
                return False
            if current["spec"].get("suspend"):
                return True
            metadata = current["metadata"]
            mark = {SUSPENDED_BY_ANNOTATION: suspended_by_us(int(metadata.get("generation") or 0) + 1)}
            patch = {
                "spec": {"suspend": True},
                "metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": mark},
            }
            cluster.patch(TRAINJOB, name_of(trainjob), patch, namespace_of(trainjob))
        except NotFound:
            return False
        except Conflict:  # its status moved on meanwhile, or it is another job
            continue
        return True
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MOST_TRIES} times while it was being suspended")


def delete_job(cluster: Cluster, trainjob: Obj) -> bool:
    """Delete it with everything that it owns. False when it is gone, or another of its name has taken its place."""
    try:
        cluster.delete(TRAINJOB, name_of(trainjob), namespace_of(trainjob), propagation="Foreground", uid=uid_of(trainjob))
    except (NotFound, Conflict):
        return False
    return True
