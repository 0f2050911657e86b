"""Change events of the store, and the bounded queue that delivers them to one watcher."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.controlplane.apiserver.storage.records import Key, Record


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
log = logging.getLogger(__name__)
QUEUE_BYTES = 32 * 1024 * 1024
"""Maximum bytes of queued JSON per watcher, in addition to the maximum number of events."""


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
                return
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
            return None
        self._is_woken = True
        return self._wake
