"""Stopping a TrainJob: suspend it, so that it can go on later, delete it, or keep it - that very one, not a successor of its name.

A job that has ended is left alone: nothing of it runs, and its status is what others still want to read.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, replace

from trainwright.api import names
from trainwright.api.errors import ApiError, Conflict, NotFound
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.pods import pods_of

PODS_SECONDS = 10.0
"""How long a program waits for the pods of a job that it has stopped: less than the grace that it has itself after a SIGTERM."""
_LOOK_SECONDS = 0.25
_MOST_TRIES = 10
_MOST_NAMED = 5


class Stopping(enum.StrEnum):
    """What becomes of a job that nobody waits for any more."""

    suspend = "suspend"
    delete = "delete"
    keep = "keep"


class Became(enum.StrEnum):
    """What became of it, in words."""

    suspended = "it is suspended and goes on when this step runs again"
    deleted = "it is deleted"
    kept = "it keeps running"
    ended = "it had ended already"
    gone = "it is gone"
    foreign = "it was not made by Trainwright, and is left alone"


@dataclass(frozen=True)
class Stopped:
    """What became of a job, and of its pods."""

    became: Became
    remaining: tuple[str, ...] = ()
    """Its pods that were still there when the time for them was over."""
    unread: str = ""
    """Why nobody can tell whether they are gone."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.became.value, self.left())))

    def left(self) -> str:
        """What is known of its pods that is not well; else empty."""
        if self.unread:
            return f"whether its pods are gone is not known: {self.unread}"
        more = len(self.remaining) - _MOST_NAMED
        named = ", ".join(self.remaining[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"still there: {named}" if named else ""


def stop_job(cluster: Cluster, trainjob: Obj, how: Stopping, *, within: float = PODS_SECONDS) -> str:
    """Stop a job of ours that way; returns what became of it, in words. Raises ApiError.

    What a program does: it leaves a job alone that does not say who of ours had it made.
    """
    if how is not Stopping.keep:
        try:
            current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        except NotFound:
            return str(Stopped(Became.gone))
        if uid_of(current) == uid_of(trainjob) and names.OWNER_ANNOTATION not in annotations_of(current):
            return str(Stopped(Became.foreign))
    return str(cancel_job(cluster, trainjob, how, within=within))


def cancel_job(cluster: Cluster, trainjob: Obj, how: Stopping, *, within: float) -> Stopped:
    """Stop that very job, whoever made it, and wait so many seconds for its pods to be gone. Again changes nothing.

    Raises ApiError where the job cannot be stopped; that its pods cannot be looked at is only said.
    """
    if how is Stopping.keep:
        return Stopped(Became.kept)
    became = _deleted(cluster, trainjob) if how is Stopping.delete else _suspended(cluster, trainjob)
    if became not in (Became.deleted, Became.suspended):
        return Stopped(became)
    return _without_pods(cluster, trainjob, Stopped(became), within)


def suspended(cluster: Cluster, trainjob: Obj) -> str:
    """Suspend it; returns what became of it, in words."""
    return stop_job(cluster, trainjob, Stopping.suspend)


def _suspended(cluster: Cluster, trainjob: Obj) -> Became:
    current = _current(cluster, trainjob)
    if current is None:
        return Became.gone
    if phase_of(current).is_final:
        return Became.ended
    return Became.suspended if suspend_job(cluster, trainjob) else Became.gone


def _deleted(cluster: Cluster, trainjob: Obj) -> Became:
    """Only as it was seen: a job that ends in this moment is seen once more, and kept."""
    for _ in range(_MOST_TRIES):
        current = _current(cluster, trainjob)
        if current is None:
            return Became.gone
        if is_deleting(current):
            return Became.deleted
        if phase_of(current).is_final:
            return Became.ended
        version = current["metadata"]["resourceVersion"]
        place = (TRAINJOB, name_of(trainjob), namespace_of(trainjob))
        try:
            cluster.delete(*place, propagation="Foreground", uid=uid_of(trainjob), resource_version=version)
        except NotFound:
            return Became.gone
        except Conflict:  # its status moved on meanwhile
            continue
        return Became.deleted
    raise Conflict(f"TrainJob {name_of(trainjob)} changed {_MOST_TRIES} times while it was being deleted")


def _current(cluster: Cluster, trainjob: Obj) -> Obj | None:
    """The very job as it is now; None when it is gone, or another of its name has taken its place."""
    try:
        current = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return None
    return current if uid_of(current) == uid_of(trainjob) else None


def _without_pods(cluster: Cluster, trainjob: Obj, stopped: Stopped, within: float) -> Stopped:
    deadline = time.monotonic() + within
    while True:
        try:
            remaining = _remaining(cluster, trainjob)
        except ApiError as error:
            return replace(stopped, unread=error.message)
        left = deadline - time.monotonic()
        if not remaining or left <= 0:
            return replace(stopped, remaining=remaining)
        time.sleep(min(_LOOK_SECONDS, left))


def _remaining(cluster: Cluster, trainjob: Obj) -> tuple[str, ...]:
    """What still runs of it, and a JobSet that has not heard of it yet: that may still make pods."""
    pods = [pod for pod in pods_of(cluster, trainjob) if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    if pods:
        current = _current(cluster, trainjob)
        successor = current is None and _exists(cluster, trainjob)
        return () if successor else tuple(f"pod {name_of(pod)}" for pod in pods)
    try:
        jobset = cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return ()
    except ApiError:  # who may look at pods need not be allowed to look at JobSets
        return ()
    goes_on = not jobset["spec"].get("suspend") and not is_deleting(jobset) and _current(cluster, trainjob) is not None
    return (f"JobSet {name_of(jobset)}",) if goes_on else ()


def _exists(cluster: Cluster, trainjob: Obj) -> bool:
    try:
        cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return False
    return True


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
        marks[names.SUSPENDED_BY_ANNOTATION] = names.suspended_by_us(int(metadata.get("generation") or 0) + 1)
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
