"""Changes a TrainJob in the version that was read, and reads it again if it has changed since."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster

_MAX_TRIES = 10
"""Without pauses: a try fails only if another change has succeeded meanwhile."""


def current_version(cluster: Cluster, trainjob: Obj) -> Obj | None:
    """Return the current state of the job; None if it was deleted, or replaced by another job of the same name. Raises ApiError."""
    try:
        current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return None
    return current if uid_of(current) == uid_of(trainjob) else None


def versions_of(cluster: Cluster, trainjob: Obj, change: str) -> Iterator[Obj]:
    """Yield the job as it is now, for one try after the other to change it in this version; ends if it no longer exists.

    Raises Conflict, with the `change` that was tried, if it has changed again during each of the tries.
    """
    for _ in range(_MAX_TRIES):
        current = current_version(cluster, trainjob)
        if current is None:
            return
        yield current
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MAX_TRIES} times while it was being {change}")
