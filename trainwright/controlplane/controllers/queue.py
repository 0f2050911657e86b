"""A work queue: duplicate keys are dropped, a key is never processed concurrently, and failed keys are retried with backoff."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.backoff import Backoff

BACKOFF = Backoff(0.05, 60.0)
LONGEST_WAIT = 3600.0
"""Of one wait: anyone may note a time in the year 9999 on an object, and waits of centuries raise OverflowError."""

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class QueueState:
    """The current contents of a queue, and counters since its creation."""

    depth: int
    oldest_seconds: float
    adds: int
    retries: int
    failing: int


class KeyQueue:
    """Thread-safe. A key added while it is being processed is queued again when `done` is called for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._ready: deque[Key] = deque()
        self._waiting: dict[Key, float] = {}
        """The keys in `_ready`, with the time when they were added."""
        self._adds = 0
        self._retries = 0
        self._processing: set[Key] = set()
        self._dirty: set[Key] = set()
        self._delayed: list[tuple[float, Key]] = []
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def add(self, key: Key) -> None:
        with self._changed:
            if key in self._processing:
                self._dirty.add(key)
            elif key not in self._waiting:
                self._enqueue(key)
                self._changed.notify()

    def _enqueue(self, key: Key) -> None:
        self._waiting[key] = self._clock()
        self._ready.append(key)
        self._adds += 1

    def add_after(self, key: Key, seconds: float) -> None:
        """Add the key after `seconds`, unless it is added earlier. Of several times the earliest is used."""
        with self._changed:
            self._schedule(key, max(seconds, 0.0))
            self._changed.notify()

    def _schedule(self, key: Key, seconds: float) -> None:
        due = self._clock() + seconds
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            heapq.heappush(self._delayed, (due, key))

    def take(self) -> Key | None:
        """Wait for the next key and return it; None after the queue is closed."""
        with self._changed:
            while not self._closed:
                key = self._next()
                if key is not None:
                    return key
                self._changed.wait(min(self._delayed[0][0] - self._clock(), LONGEST_WAIT) if self._delayed else None)
            return None

    def poll(self) -> Key | None:
        """Return the next key, or None if there is none."""
        with self._changed:
            return None if self._closed else self._next()

    def seconds_to_next(self) -> float | None:
        """Return the seconds until the next key: 0 if one is ready, None if none is scheduled."""
        with self._changed:
            if self._ready:
                return 0.0
            return max(self._delayed[0][0] - self._clock(), 0.0) if self._delayed else None

    def _next(self) -> Key | None:
        self._move_due()
        if not self._ready:
            return None  # everything due is being processed, or nothing is due
        key = self._ready.popleft()
        del self._waiting[key]
        self._processing.add(key)
        return key

    def done(self, key: Key, *, failed: bool = False) -> None:
        """Mark the key as processed. After a failure it is retried with exponential backoff."""
        with self._changed:
            self._processing.discard(key)
            if failed:
                count = self._failures[key] = self._failures.get(key, 0) + 1
                self._schedule(key, BACKOFF.seconds(count))
                self._retries += 1
            else:
                self._failures.pop(key, None)
            if key in self._dirty:  # it changed while it was processed
                self._dirty.discard(key)
                self._enqueue(key)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """The number of keys that are ready."""
        with self._changed:
            self._move_due()
            return len(self._ready)

    def state(self) -> QueueState:
        with self._changed:
            self._move_due()
            oldest = self._clock() - self._waiting[self._ready[0]] if self._ready else 0.0
            return QueueState(len(self._ready), oldest, self._adds, self._retries, len(self._failures))

    def _move_due(self) -> None:
        now = self._clock()
        while self._delayed and self._delayed[0][0] <= now:
            due, key = heapq.heappop(self._delayed)
            if self._due.get(key) != due:
                continue  # superseded by an earlier time
            del self._due[key]
            if key in self._processing:
                self._dirty.add(key)
            elif key not in self._waiting:
                self._enqueue(key)
