"""One list and watch of a kind for everybody in this process who waits for one of its objects, however many they are.

Begun with the first follower and ended with the last: a thousand waiters cost the cluster one connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.keeping import Keeping
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector

Told = Callable[[str, Obj], None]
"""`(ADDED | MODIFIED | DELETED, object)`. Called in the watch's thread, under its lock: must be quick and must not raise."""


@dataclass(frozen=True, eq=False, slots=True)
class Follower:
    """Somebody who follows one object."""

    watch: _Watch
    namespace: str
    name: str
    told: Told

    @property
    def reflector(self) -> Reflector:
        """For its `failure` and `synced`."""
        return self.watch.reflector

    @property
    def cluster(self) -> Cluster:
        return self.watch.cluster

    def is_absent(self) -> bool:
        """Whether the cluster is known not to have the object."""
        return self.reflector.synced.is_set() and (self.namespace, self.name) not in self.reflector.known


class SharedWatches:
    """The watches of a process. `key` tells clusters apart: how one is reached, e.g. the name of a connection.

    `keep` says what of each object is kept and told, for those who follow very many.
    """

    def __init__(self, keep: Callable[[Obj], Obj] = lambda obj: obj) -> None:
        self._keep = keep
        self._watches: dict[Hashable, _Watch] = {}
        self._lock = threading.Lock()

    def follow(
        self, key: Hashable, connect: Callable[[], Cluster], kind: Kind, namespace: str, name: str, told: Told
    ) -> Follower:
        """Follow one object until `leave`; `told` hears of it as it is now, once that is known, and of every change.

        `connect` is called for the first follower of a cluster, and what it raises is raised here.
        """
        with self._lock:
            where = (key, kind.plural, namespace)
            watch = self._watches.get(where)
            if watch is None:
                watch = self._watches[where] = _Watch(connect(), kind, namespace, self._keep)
            follower = Follower(watch, namespace, name, told)
            watch.join(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        """Hear no more; the last to leave ends the watch. Leaving twice is the same as once."""
        with self._lock:
            if follower.watch.part(follower):
                self._watches = {where: watch for where, watch in self._watches.items() if watch is not follower.watch}


class _Watch:
    """One reflector and those who follow it."""

    def __init__(self, cluster: Cluster, kind: Kind, namespace: str, keep: Callable[[Obj], Obj]):
        self.cluster = cluster
        self.reflector = Reflector(Keeping(cluster, keep), kind, namespace, handler=self._tell)
        self._followers: dict[tuple[str, str], set[Follower]] = {}
        self._lock = threading.Lock()
        self.reflector.start()

    def join(self, follower: Follower) -> None:
        """Under the lock that every change takes: who joins never hears something older after something newer."""
        with self._lock:
            self._followers.setdefault((follower.namespace, follower.name), set()).add(follower)
            known = self.reflector.known.get((follower.namespace, follower.name))
            if known is not None:
                follower.told("ADDED", known)

    def part(self, follower: Follower) -> bool:
        """Whether nobody is left; the reflector is stopped then."""
        with self._lock:
            key = (follower.namespace, follower.name)
            if followers := self._followers.get(key):
                followers.discard(follower)
                if not followers:
                    del self._followers[key]
            if not self._followers:
                self.reflector.stop.set()
            return not self._followers

    def _tell(self, event: str, obj: Obj) -> None:
        with self._lock:
            for follower in tuple(self._followers.get((namespace_of(obj), name_of(obj)), ())):
                follower.told(event, obj)
