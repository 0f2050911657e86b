"""Shares one list and watch of a kind among all subscribers of a process.

Started with the first subscription and stopped with the last: a thousand subscribers need one connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import CONNECTION_SECONDS, Reflector
from trainwright.cluster.transforming_lister import TransformingLister

OnChange = Callable[[str, Obj], None]
"""`(ADDED | MODIFIED | DELETED, object)`. Called in the watch's thread, under its lock: must be quick and must not raise."""


@dataclass(frozen=True)
class Watched:
    """What a watch lists: the objects of a namespace, or those that the selectors choose.

    `connection_seconds`: a watch may outlive its last subscription by so long.
    """

    kind: Kind
    namespace: str
    label_selector: str = ""
    field_selector: str = ""
    connection_seconds: int = CONNECTION_SECONDS


@dataclass(frozen=True, eq=False, slots=True)
class Subscription:
    """A subscription to one object, or to a group of them."""

    watch: _Watch
    group: str
    on_change: OnChange

    @property
    def reflector(self) -> Reflector:
        """The reflector, for its `failure` and `synced`."""
        return self.watch.reflector

    @property
    def cluster(self) -> Cluster:
        return self.watch.cluster

    def is_absent(self) -> bool:
        """Whether the object, or the whole group, is known not to exist."""
        return self.reflector.synced.is_set() and not self.watch.known.get(self.group)


class SharedWatches:
    """The watches of a process. `key` identifies a cluster, for instance by the name of a connection.

    `transform` trims each object before it is stored and published, to bound memory. `group_of` an object is what it is subscribed
    to by: its name.
    """

    def __init__(self, transform: Callable[[Obj], Obj] = lambda obj: obj, group_of: Callable[[Obj], str] = name_of) -> None:
        self._transform, self._group_of = transform, group_of
        self._watches: dict[Hashable, _Watch] = {}
        self._lock = threading.Lock()

    def subscribe(
        self, key: Hashable, connect: Callable[[], Cluster], watched: Watched, group: str, on_change: OnChange
    ) -> Subscription:
        """Subscribe to a group until `unsubscribe`. `on_change` gets the current state of its objects once known, then every change.

        `connect` is called for the first subscription of a cluster to what is watched; its errors are raised here.
        """
        with self._lock:
            watch = self._watches.get((key, watched))
            if watch is None:
                watch = self._watches[key, watched] = _Watch(connect(), watched, self._transform, self._group_of)
            subscription = Subscription(watch, group, on_change)
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
    """One reflector and its subscriptions. `known` are the objects by group and name."""

    def __init__(
        self, cluster: Cluster, watched: Watched, transform: Callable[[Obj], Obj], group_of: Callable[[Obj], str]
    ) -> None:
        self.cluster, self._group_of = cluster, group_of
        self.known: dict[str, dict[str, Obj]] = {}
        self.reflector = Reflector(
            TransformingLister(cluster, transform),
            watched.kind,
            watched.namespace,
            handler=self._notify,
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
            connection_seconds=watched.connection_seconds,
        )
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._lock = threading.Lock()
        self.reflector.start()

    def add(self, subscription: Subscription) -> None:
        """Add a subscription. Takes the lock of change notifications, so that no older state is published after a newer one."""
        with self._lock:
            self._subscriptions.setdefault(subscription.group, set()).add(subscription)
            for obj in self.known.get(subscription.group, {}).values():
                subscription.on_change("ADDED", obj)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; returns whether it was the last, which stops the reflector."""
        with self._lock:
            if subscriptions := self._subscriptions.get(subscription.group):
                subscriptions.discard(subscription)
                if not subscriptions:
                    del self._subscriptions[subscription.group]
            if not self._subscriptions:
                self.reflector.stop.set()
            return not self._subscriptions

    def _notify(self, event: str, obj: Obj) -> None:
        group, name = self._group_of(obj), name_of(obj)
        with self._lock:
            objects = self.known.setdefault(group, {})
            if event == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = obj
            if not objects:
                del self.known[group]
            for subscription in tuple(self._subscriptions.get(group, ())):
                subscription.on_change(event, obj)
