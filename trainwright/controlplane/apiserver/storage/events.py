"""Changes of the store: their events, the bounded queues that deliver them to watchers, and their recent history.

From the history watches resume, and lists at earlier revisions are reconstructed.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.api.errors import Expired
from trainwright.controlplane.apiserver.storage.object_table import Key, Record, Records, RingBuffer

QUEUE_BYTES = 32 * 1024 * 1024
"""Maximum bytes of queued JSON per watcher, in addition to the maximum number of events."""
HISTORY_SIZE = 2000
"""Recent events kept for resuming watches; with 4 KB objects at most about 50 MB."""
HISTORY_BYTES = 16 * 1024 * 1024
"""Maximum JSON bytes of the recent events; parsed objects take several times as much."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `type` is ADDED, MODIFIED or DELETED; a DELETED event has the last state, at the revision of the deletion."""

    type: str
    resource: str
    key: Key
    record: Record
    previous: Record | None

    @property
    def revision(self) -> int:
        return self.record.revision

    @property
    def current(self) -> Record | None:
        """The object after the change; None if it was deleted."""
        return None if self.type == "DELETED" else self.record


Events = list[Event]


class Subscription:
    """The changes of one resource (in one or all namespaces), in order, without gaps or duplicates.

    The store adds events while it holds its lock and never waits: if the queue is full, it sets `overflowed` and closes the
    subscription, and the reader must list again. Readers are threads (`take` blocks) or event loops (`wake` is called, from any
    thread, when events are queued).
    """

    def __init__(
        self,
        resource: str,
        namespace: str | None,
        initial: list[Record],
        revision: int,
        capacity: int,
        wake: Callable[[], None] | None,
    ):
        self.resource = resource
        self.namespace = namespace
        self.initial = initial
        """The objects at the start, if the subscription did not name a revision."""
        self.overflowed = False
        self._revision = revision
        self._queue: deque[Event] = deque()
        self._capacity = capacity
        self._wake = wake
        self._closed = self._is_woken = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = self._waiting_bytes = 0

    @property
    def ended(self) -> bool:
        """Whether it is closed and every event was taken."""
        with self._lock:
            return self._closed and not self._queue

    def matches(self, event: Event) -> bool:
        return self.resource == event.resource and self.namespace in (None, event.key[0])

    def push(self, event: Event) -> None:
        """Queue an event; close the subscription if the queue is full. Called by the store."""
        with self._lock:
            if self._closed or event.revision <= self._revision:
                return  # nobody takes it, or the watch began after this change
            self._waiting_bytes += len(event.record.data)
            if len(self._queue) >= self._capacity or self._waiting_bytes > QUEUE_BYTES:
                self._closed = self.overflowed = True
                self._queue.clear()
            else:
                self._queue.append(event)
            wakes = self._notify()
        if wakes:
            try:
                wakes()
            except Exception:  # one watcher must not keep the change from the others, and from whoever has made it
                log.exception("event=watcher_not_woken resource=%s", self.resource)

    def take(self, timeout: float | None = 0.0) -> list[Event]:
        """Take all queued events, waiting up to `timeout` seconds for one. Empty after the timeout and at the end."""
        with self._lock:
            if not self._queue and not self._closed and timeout != 0:
                self._waiting += 1
                self._changed.wait(timeout)
                self._waiting -= 1
            events = list(self._queue)
            self._queue.clear()
            self._waiting_bytes, self._is_woken = 0, False
            if events:
                self._revision = events[-1].revision
            return events

    def advance(self, revision: int) -> int:
        """The revision up to which the reader has taken all events; at least `revision` if none is queued.

        Called by the store under its lock, so that no event arrives meanwhile.
        """
        with self._lock:
            if not self._queue and not self._closed:
                self._revision = max(self._revision, revision)
            return self._revision

    def close(self) -> None:
        """End the subscription; queued events can still be taken."""
        with self._lock:
            self._closed = True
            self._is_woken = False
            wakes = self._notify()
        if wakes:
            wakes()

    def _notify(self) -> Callable[[], None] | None:
        """Notify waiting threads, under the lock. Returns the wake callback at most once until the reader takes events."""
        if self._waiting:
            self._changed.notify_all()
        if self._is_woken:
            return None  # the reader has been woken, and has not taken anything since
        self._is_woken = True
        return self._wake


class Watchers:
    """Subscriptions by resource. Not thread-safe: the store calls it under its lock."""

    def __init__(self, queue_size: int):
        self.queue_size = queue_size
        self._by_resource: dict[str, list[Subscription]] = {}

    def add(self, subscription: Subscription) -> None:
        self._by_resource.setdefault(subscription.resource, []).append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; a no-op if it was removed before."""
        others = self._by_resource.get(subscription.resource, [])
        if subscription in others:
            others.remove(subscription)

    def remove_all(self) -> list[Subscription]:
        every = [subscription for group in self._by_resource.values() for subscription in group]
        self._by_resource.clear()
        return every

    def counts(self) -> dict[str, int]:
        return {resource: len(group) for resource, group in self._by_resource.items() if group}

    def notify(self, event: Event) -> None:
        """Send the event to matching subscriptions; remove those that overflowed."""
        listeners = self._by_resource.get(event.resource)
        if not listeners:
            return  # nobody watches this resource
        for subscription in listeners:
            if subscription.matches(event):
                subscription.push(event)
        if any(subscription.overflowed for subscription in listeners):
            self._by_resource[event.resource] = [subscription for subscription in listeners if not subscription.overflowed]
            log.warning("event=watcher_too_slow resource=%s queue=%d", event.resource, self.queue_size)


class History:
    """The latest changes, bounded in number and bytes. Not thread-safe: the store calls it under its lock."""

    def __init__(self, size: int, floor: int):
        self._events: RingBuffer[Event] = RingBuffer(size, HISTORY_BYTES)
        self._floor = floor

    def append(self, event: Event) -> None:
        size, previous = event.record.size, event.previous
        if previous is not None and previous.revision <= self._floor:  # no event in the history counts it
            size += previous.size
        for forgotten in self._events.append(event, size):
            self._floor = forgotten.revision

    def since(self, revision: int, current: int) -> Events:
        """Every change after `revision` up to `current`, oldest first. Raises Expired if some are no longer kept."""
        if revision < self._floor:
            raise Expired(f"too old resource version: {revision} ({self._floor})")
        if revision >= current:
            return []
        # Newest first: a resuming watch is rarely far behind.
        later: Events = []
        for event in reversed(self._events):
            if event.revision <= revision:
                break
            later.append(event)
        later.reverse()
        return later

    @staticmethod
    def revert(records: Records, later: Events, namespace: str | None) -> Records:
        """The records with these events reverted; `later` holds events of one resource, oldest first."""
        if not later:
            return records
        objects = {record.key: record for record in records}
        for event in reversed(later):
            if namespace not in (None, event.key[0]):
                continue
            if event.previous is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.previous
        return [objects[key] for key in sorted(objects)]
