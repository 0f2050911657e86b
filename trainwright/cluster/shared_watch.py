"""Shares one list and watch of a kind among all subscribers of a process.

Started with the first subscription and stopped with the last: a thousand subscribers need one connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector
from trainwright.cluster.transforming_lister import TransformingLister

OnChange = Callable[[str, Obj], None]
"""`(ADDED | MODIFIED | DELETED, object)`. Called in the watch's thread, under its lock: must be quick and must not raise."""


@dataclass(frozen=True, eq=False, slots=True)
class Subscription:
    """A subscription to one object."""

    watch: _Watch
    namespace: str
    name: str
    on_change: OnChange

    @property
    def reflector(self) -> Reflector:
        """The reflector, for its `failure` and `synced`."""
        return self.watch.reflector

    @property
    def cluster(self) -> Cluster:
        return self.watch.cluster

    def is_absent(self) -> bool:
        """Whether the object is known not to exist."""
        return self.reflector.synced.is_set() and (self.namespace, self.name) not in self.reflector.known


class SharedWatches:
    """The watches of a process. `key` identifies a cluster, for instance by the name of a connection.

    `transform` trims each object before it is stored and published, to bound memory.
    """

    def __init__(self, transform: Callable[[Obj], Obj] = lambda obj: obj) -> None:
        self._transform = transform
        self._watches: dict[Hashable, _Watch] = {}
        self._lock = threading.Lock()

    def subscribe(
        self, key: Hashable, connect: Callable[[], Cluster], kind: Kind, namespace: str, name: str, on_change: OnChange
    ) -> Subscription:
        """Subscribe to one object until `unsubscribe`. `on_change` gets its current state once known, then every change.

        `connect` is called for the first subscription of a cluster, kind and namespace; its errors are raised here.
        """
        with self._lock:
            watch_key = (key, kind.plural, namespace)
            watch = self._watches.get(watch_key)
            if watch is None:
                watch = self._watches[watch_key] = _Watch(connect(), kind, namespace, self._transform)
            subscription = Subscription(watch, namespace, name, on_change)
            watch.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; the last one stops the watch. Idempotent."""
        with self._lock:
            if subscription.watch.remove(subscription):
                self._watches = {
                    watch_key: watch for watch_key, watch in self._watches.items() if watch is not subscription.watch
                }


class _Watch:
    """One reflector and its subscriptions."""

    def __init__(self, cluster: Cluster, kind: Kind, namespace: str, transform: Callable[[Obj], Obj]):
        self.cluster = cluster
        self.reflector = Reflector(TransformingLister(cluster, transform), kind, namespace, handler=self._notify)
        self._subscriptions: dict[tuple[str, str], set[Subscription]] = {}
        self._lock = threading.Lock()
        self.reflector.start()

    def add(self, subscription: Subscription) -> None:
        """Add a subscription. Takes the lock of change notifications, so that no older state is published after a newer one."""
        with self._lock:
            self._subscriptions.setdefault((subscription.namespace, subscription.name), set()).add(subscription)
            known = self.reflector.known.get((subscription.namespace, subscription.name))
            if known is not None:
                subscription.on_change("ADDED", known)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; returns whether it was the last, which stops the reflector."""
        with self._lock:
            key = (subscription.namespace, subscription.name)
            if subscriptions := self._subscriptions.get(key):
                subscriptions.discard(subscription)
                if not subscriptions:
                    del self._subscriptions[key]
            if not self._subscriptions:
                self.reflector.stop.set()
            return not self._subscriptions

    def _notify(self, event: str, obj: Obj) -> None:
        with self._lock:
            for subscription in tuple(self._subscriptions.get((namespace_of(obj), name_of(obj)), ())):
                subscription.on_change(event, obj)
