"""Watches of jobs and their pods: the first wait of a process watches its one job, concurrent ones share those of the namespace.

A single wait (a KFP step, an Airflow worker, the command line) needs only a list and a watch of one name, which a role restricted
to that name allows, and does not receive the changes of other jobs. From the second wait on, sharing one watch saves a connection
for each.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

from trainwright.api.errors import ApiError, Forbidden, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector, SharedWatches, Subscription, Watched
from trainwright.cluster.refusals import PASSING_SECONDS
from trainwright.jobs.state.watched_pods import PodsOfJob, WatchedPods

CLUSTER_LOST_SECONDS = 1800
"""Seconds of an unreachable API server after which the wait fails."""
ACCESS_LOST_SECONDS = 180
"""Seconds of rejected credentials, or of a withdrawn permission, after which the wait fails."""
REFUSED_SECONDS = 0.9
"""Seconds of a refused first list after which the wait fails: an API server that has just been started refuses everybody."""
_shared, _pods = SharedWatches(), WatchedPods()
_waiting: Counter[tuple[int, str]] = Counter()
_lock = threading.Lock()


class LatestValue:
    """Holds the latest change until it is taken; older changes are overwritten, and `put` never blocks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._change: tuple[str, Obj] | None = None

    def put(self, event: str, obj: Obj) -> None:
        with self._changed:
            self._change = (event, obj)
            self._changed.notify()

    def take(self, seconds: float) -> tuple[str, Obj] | None:
        """Wait up to `seconds` for a change; None if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._change is not None, seconds)
            change, self._change = self._change, None
            return change


class JobWatch:
    """A context manager that provides the changes of one job. A watch of it alone outlives the block by `connection_seconds`."""

    def __init__(self, cluster: Cluster, trainjob: Obj, connection_seconds: int):
        self._cluster, self._trainjob, self._changes = cluster, trainjob, LatestValue()
        self._connection_seconds = connection_seconds
        self._key = (id(cluster), namespace_of(trainjob))
        self._subscription: Subscription
        self._is_shared = False
        self.cluster: PodsOfJob
        """The cluster, on which the pods of the job are those that a watch knows."""

    def __enter__(self) -> JobWatch:
        with _lock:
            _waiting[self._key] += 1
            self._is_shared = _waiting[self._key] > 1
        self._subscribe()
        place = (self._cluster, namespace_of(self._trainjob), name_of(self._trainjob))
        self.cluster = _pods.open(id(self._cluster), *place, alone=not self._is_shared, seconds=self._connection_seconds)
        return self

    def __exit__(self, *_: object) -> None:
        _shared.unsubscribe(self._subscription)
        self.cluster.close()
        with _lock:
            _waiting[self._key] -= 1
            if not _waiting[self._key]:
                del _waiting[self._key]

    def next_change(self, seconds: float) -> tuple[str, Obj] | None:
        """Wait up to `seconds` for the latest change; None if there is none. Raises the errors of `check_reachable`."""
        change = self._changes.take(seconds)
        if change is None:
            self._check()
        return change

    def is_absent(self) -> bool:
        """Whether the watch does not contain the job; a shared watch may not contain it yet."""
        return self._subscription.is_absent()

    def _check(self) -> None:
        try:
            check_reachable(self._subscription.reflector, self._trainjob)
        except Forbidden:
            if not self._is_shared:
                raise
            _shared.unsubscribe(self._subscription)  # without permission to watch the namespace, watching one name may be allowed
            self._is_shared = False
            self._subscribe()

    def _subscribe(self) -> None:
        name, seconds = name_of(self._trainjob), self._connection_seconds
        watched = Watched(TRAINJOB, namespace_of(self._trainjob))
        if not self._is_shared:
            watched = replace(watched, field_selector=f"metadata.name={name}", connection_seconds=seconds)
        self._subscription = _shared.subscribe(id(self._cluster), lambda: self._cluster, watched, name, self._changes.put)


def check_reachable(reflector: Reflector, trainjob: Obj) -> None:
    """Raise the watch's ApiError if waiting on for the job is pointless.

    That is: no permission, unless the server was unreachable a moment before; credentials that are rejected or a permission that is
    gone for ACCESS_LOST_SECONDS (a renewed token is used as soon as there is one), or an API server that is unreachable for
    CLUSTER_LOST_SECONDS.
    """
    failure, denied_since, now = reflector.failure, reflector.denied_since, time.monotonic()
    if failure is None:
        return
    since, error = failure
    if denied_since is not None and now - denied_since > ACCESS_LOST_SECONDS:
        raise _access_lost(error, trainjob, now - denied_since)
    is_refused = isinstance(error, Forbidden) and denied_since is not None and not reflector.synced.is_set()
    allowed = REFUSED_SECONDS if denied_since == since else PASSING_SECONDS
    if (is_refused and now - (denied_since or now) >= allowed) or now - since > CLUSTER_LOST_SECONDS:
        raise error


def _access_lost(error: ApiError, trainjob: Obj, seconds: float) -> ApiError:
    if not isinstance(error, Unauthorized):
        return error
    return Unauthorized(
        f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)} goes on, but is not watched any more: the API server has rejected "
        f"the credentials for {seconds:.0f} s ({error.message}); renew them, then wait again: a retry of the step adopts the job"
    )
