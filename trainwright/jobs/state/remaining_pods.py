"""The pods that a stopped TrainJob has left, and the wait for their end.

A pod that ignores SIGTERM runs for its whole grace period, and its Job does not wait for it: a job that is resumed meanwhile, or the
next attempt of its step, would have two pods of each rank, which write to one folder.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.attempts import current_version
from trainwright.jobs.state.pods import pods_of

MARGIN_SECONDS = 30.0
"""Time beyond the grace period in which a pod must have ended: the controllers and the kubelet have to act first."""
_DEFAULT_GRACE_SECONDS = 30
_POLL_SECONDS = 0.5
_MAX_NAMED = 5
log = logging.getLogger(__name__)


def remaining_pods(cluster: Cluster, trainjob: Obj) -> list[Obj]:
    """Return the pods of this job that have not ended; none if another job of the same name has replaced it. Raises ApiError."""
    pods = [pod for pod in pods_of(cluster, trainjob) if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    return [] if pods and _is_replaced(cluster, trainjob) else pods


def jobset_may_create_pods(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether the JobSet of a job that is to stop is not suspended yet. Raises ApiError if the TrainJob cannot be read."""
    try:
        jobset = cluster.get(JOBSET, name_of(trainjob), namespace_of(trainjob))
    except ApiError:  # it is gone, or permission to list pods does not imply permission to read JobSets
        return False
    if jobset["spec"].get("suspend") or is_deleting(jobset) or is_finished(jobset):  # its controller creates no more pods
        return False
    return current_version(cluster, trainjob) is not None


def wait_until_pods_ended(
    cluster: Cluster, trainjob: Obj, stop: threading.Event | None = None, *, to_resume: bool = False
) -> bool:
    """Wait until no pod of a job that is suspended, is being deleted or has ended is left.

    With `to_resume` only until somebody else has resumed the job: its pods are to stay then. At most for their grace period and
    MARGIN_SECONDS: pods of a lost node may never end. Without permission to list pods there is no wait. Returns False if `stop` has
    ended the wait. Raises ApiError.
    """
    stop = stop or threading.Event()
    began, grace, was_told = time.monotonic(), _DEFAULT_GRACE_SECONDS, False
    while True:
        try:
            pods = remaining_pods(cluster, trainjob)
            if not pods and (is_finished(trainjob) or not jobset_may_create_pods(cluster, trainjob)):
                return True
        except Forbidden as error:  # an optional right: the next attempt begins without the wait
            log.warning("event=pods_not_checked name=%s error=%s", name_of(trainjob), error.message)
            return True
        if to_resume and _is_resumed(cluster, trainjob):  # somebody else was first, and its pods are new
            return True
        grace = max(grace, *(_grace_of(pod) for pod in pods)) if pods else grace
        if time.monotonic() - began > grace + MARGIN_SECONDS:  # on a lost node, whose pods end when it is back
            log.warning("event=pods_not_ended name=%s pods=%s", name_of(trainjob), named_pods(map(name_of, pods)))
            return True
        if not was_told:
            log.warning("event=waiting_for_pods_to_end name=%s pods=%s", name_of(trainjob), named_pods(map(name_of, pods)))
            was_told = True
        if stop.wait(_POLL_SECONDS):  # the step itself is being cancelled
            return False


def have_pods_ended(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether the wait of `wait_until_pods_ended` would be over, for clients that may not wait. Raises ApiError.

    A pod that should have ended MARGIN_SECONDS ago, by the clock of this machine, is taken for lost.
    """
    try:
        pods = remaining_pods(cluster, trainjob)
    except Forbidden:  # an optional right, see `wait_until_pods_ended`
        return True
    if pods:
        return all(_is_overdue(pod) for pod in pods)
    return not jobset_may_create_pods(cluster, trainjob)


def named_pods(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    every = list(names)
    more = len(every) - _MAX_NAMED
    return ", ".join(every[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def describe_pods(pods: Iterable[Obj]) -> str:
    """Return which pods are still running, and which have not started: an image that cannot be pulled keeps a pod Pending. Pure."""
    words: dict[str, list[str]] = {"still running": [], "not started yet": []}
    for pod in pods:
        is_pending = (pod.get("status") or {}).get("phase", "Pending") == "Pending"
        words["not started yet" if is_pending else "still running"].append(f"pod {name_of(pod)}")
    return "; ".join(f"{state}: {named_pods(named)}" for state, named in words.items() if named)


def _grace_of(pod: Obj) -> int:
    """Return for how many seconds a pod may run after its deletion."""
    seconds = pod["metadata"].get("deletionGracePeriodSeconds")
    if seconds is None:
        seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if seconds is None else int(seconds)


def _is_overdue(pod: Obj) -> bool:
    ends = pod["metadata"].get("deletionTimestamp")
    return bool(ends) and seconds_between(ends, datetime.now(UTC)) > MARGIN_SECONDS


def _is_replaced(cluster: Cluster, trainjob: Obj) -> bool:
    current = _current(cluster, trainjob)
    return current is not None and uid_of(current) != uid_of(trainjob)


def _is_resumed(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether a job that was suspended has been resumed since: the pods that it has, or may create, are to stay."""
    current = _current(cluster, trainjob) if trainjob["spec"].get("suspend") else None
    return current is not None and not current["spec"].get("suspend") and not is_deleting(current)


def _current(cluster: Cluster, trainjob: Obj) -> Obj | None:
    try:
        return cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return None
