"""Deletes a finished object when its `ttlSecondsAfterFinished` has passed."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.conditions import condition
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster

_FINISHED_CONDITIONS = ("Complete", "Completed", "Failed")


def delete_expired(cluster: Cluster, kind: Kind, obj: Obj, now: datetime) -> float | None:
    """Delete an object, after its dependents, if its time is over; else return the seconds until then, None if it never expires.

    The time counts from the finished condition.
    """
    ttl = obj["spec"].get("ttlSecondsAfterFinished")
    ended = [entry for end in _FINISHED_CONDITIONS if (entry := condition(obj, end)) is not None and entry["status"] == "True"]
    if ttl is None or not ended:
        return None  # kept until somebody deletes it, or still running
    left = float(ttl - seconds_between(ended[0]["lastTransitionTime"], now))
    if left > 0:
        return left  # requeued then
    cluster.delete(kind, name_of(obj), namespace_of(obj), propagation="Foreground", uid=uid_of(obj))
    return None
