"""How a wait hears of its job: the first of a process on a watch of that one job, all who come while it waits on one shared watch.

A single waiter - a KFP step, an Airflow worker, the command line - costs what it always did: a list and a watch narrowed to one
name, which a role for that name alone allows. A watch of the namespace would send it every other job's changes. From the second
waiter on it is the other way round: one more connection in all, instead of one each.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Protocol

from trainwright.api.errors import Forbidden, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector
from trainwright.cluster.shared_watch import Follower, SharedWatches

_CONNECTION_SECONDS = 30
"""How long the watch of one job outlives its wait at most."""
LOST_SECONDS = 1800
"""A cluster that has answered nothing for so long will not tell how the job ended."""
_shared = SharedWatches()
_waiting: Counter[tuple[int, str]] = Counter()
_lock = threading.Lock()


class Latest:
    """The last change that was told and not yet taken: who waits needs no other, and who tells never waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._change: tuple[str, Obj] | None = None

    def put(self, event: str, obj: Obj) -> None:
        with self._changed:
            self._change = (event, obj)
            self._changed.notify()

    def take(self, seconds: float) -> tuple[str, Obj] | None:
        """The change, as soon as there is one; None when none came in that time."""
        with self._changed:
            self._changed.wait_for(lambda: self._change is not None, seconds)
            change, self._change = self._change, None
            return change


class _Source(Protocol):
    """Where changes come from."""

    @property
    def reflector(self) -> Reflector: ...

    def is_absent(self) -> bool: ...

    def close(self) -> None: ...


class _Alone:
    """A watch of that one job."""

    def __init__(self, cluster: Cluster, trainjob: Obj, changes: Latest):
        self._ended = threading.Event()
        self.reflector = Reflector(
            cluster,
            TRAINJOB,
            namespace_of(trainjob),
            handler=changes.put,
            field_selector=f"metadata.name={name_of(trainjob)}",
            stop=self._ended,
            connection_seconds=_CONNECTION_SECONDS,
        )
        self.reflector.start()

    def is_absent(self) -> bool:
        return self.reflector.synced.is_set() and not self.reflector.known

    def close(self) -> None:
        self._ended.set()


class _Together:
    """A place at the watch of the namespace."""

    def __init__(self, cluster: Cluster, trainjob: Obj, changes: Latest):
        place = (TRAINJOB, namespace_of(trainjob), name_of(trainjob))
        self._follower: Follower = _shared.follow(id(cluster), lambda: cluster, *place, changes.put)
        self.reflector = self._follower.reflector

    def is_absent(self) -> bool:
        return self._follower.is_absent()

    def close(self) -> None:
        _shared.leave(self._follower)


class Watching:
    """The changes of one job for as long as somebody waits; a context manager."""

    def __init__(self, cluster: Cluster, trainjob: Obj):
        self._cluster, self._trainjob, self._changes = cluster, trainjob, Latest()
        self._place = (id(cluster), namespace_of(trainjob))
        self._source: _Source

    def __enter__(self) -> Watching:
        with _lock:
            _waiting[self._place] += 1
            others = _waiting[self._place] > 1
        self._source = (_Together if others else _Alone)(self._cluster, self._trainjob, self._changes)
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        with _lock:
            _waiting[self._place] -= 1
            if not _waiting[self._place]:
                del _waiting[self._place]

    def next_change(self, seconds: float) -> tuple[str, Obj] | None:
        """The latest change, or None when none came in that time. Raises what `check_reachable` raises."""
        change = self._changes.take(seconds)
        if change is None:
            self._check()
        return change

    def is_absent(self) -> bool:
        """Whether the watch knows of no such job; a shared one may not know it yet."""
        return self._source.is_absent()

    def _check(self) -> None:
        try:
            check_reachable(self._source.reflector)
        except (Forbidden, Unauthorized):
            if isinstance(self._source, _Alone):
                raise
            self._source.close()  # who may not watch the namespace may watch this one
            self._source = _Alone(self._cluster, self._trainjob, self._changes)


def check_reachable(reflector: Reflector) -> None:
    """Raise the cluster's error when going on would be waiting for nothing: who may not read, a cluster lost for long."""
    if reflector.failure is None:
        return
    since, error = reflector.failure
    refused = isinstance(error, Forbidden | Unauthorized) and not reflector.synced.is_set()
    if refused or time.monotonic() - since > LOST_SECONDS:
        raise error
