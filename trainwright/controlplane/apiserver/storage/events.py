"""What the store tells of a change, and the bounded queue in which one watcher hears of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.controlplane.apiserver.storage.records import Key, Record


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `type` is ADDED, MODIFIED or DELETED; a deletion carries the last state, with the revision of the deletion."""

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
        """The object after the change; None when it was deleted."""
        return None if self.type == "DELETED" else self.record


Events = list[Event]
QUEUE_BYTES = 32 * 1024 * 1024
"""JSON that may wait for one watcher, besides the number of events."""


class Subscription:
    """The changes of one resource (in one namespace, or in all), in order, without gap or repetition.

    The store fills it under the lock of the write, and closes it instead of waiting when the reader is too slow:
    `overflowed` is then true, and the reader has to list again. Readers are threads (`take` waits) or event loops
    (`wake` is called, from any thread, when there is something to take).
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
        """What there was at the start, for a subscription that did not name a revision."""
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
        """Whether nothing will ever come any more."""
        with self._lock:
            return self._closed and not self._queue

    def wants(self, event: Event) -> bool:
        return self.resource == event.resource and self.namespace in (None, event.key[0])

    def push(self, event: Event) -> None:
        """For the store: one more event, or the end when the queue is full."""
        with self._lock:
            if self._closed or event.revision <= self._revision:
                return
            self._waiting_bytes += len(event.record.data)
            if len(self._queue) >= self._capacity or self._waiting_bytes > QUEUE_BYTES:
                self._closed = self.overflowed = True
                self._queue.clear()
            else:
                self._queue.append(event)
            wakes = self._stir()
        if wakes:
            wakes()

    def take(self, timeout: float | None = 0.0) -> list[Event]:
        """All events that wait; with none, waits up to `timeout` seconds. Empty when none came or the subscription ended."""
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
        """The revision up to which the reader has heard everything; `revision` where nothing waits to be taken.

        To be called by the store, which holds off writes meanwhile.
        """
        with self._lock:
            if not self._queue and not self._closed:
                self._revision = max(self._revision, revision)
            return self._revision

    def close(self) -> None:
        """End it; what is queued can still be taken."""
        with self._lock:
            self._closed = True
            self._is_woken = False
            wakes = self._stir()
        if wakes:
            wakes()

    def _stir(self) -> Callable[[], None] | None:
        """Under the lock: let those go on who wait; returns what wakes the reader, once until it takes what there is."""
        if self._waiting:
            self._changed.notify_all()
        if self._is_woken:
            return None
        self._is_woken = True
        return self._wake
