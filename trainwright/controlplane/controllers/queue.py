"""A queue of keys: duplicates are dropped, no key is worked on twice at once, and a key that fails comes back later and later."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

FIRST_BACKOFF_SECONDS = 0.05
MOST_BACKOFF_SECONDS = 60.0

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class QueueState:
    """What a queue holds now, and what it has been given so far."""

    depth: int
    oldest_seconds: float
    adds: int
    retries: int
    failing: int


class KeyQueue:
    """Thread-safe. A key added while it is being worked on is queued again when `done` is called for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._ready: deque[Key] = deque()
        self._waiting: dict[Key, float] = {}
        """What is in `_ready`, and since when."""
        self._adds = 0
        self._retries = 0
        self._working: set[Key] = set()
        self._dirty: set[Key] = set()
        self._later: list[tuple[float, Key]] = []
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._closed = False
        self._changed = threading.Condition()

    def add(self, key: Key) -> None:
        with self._changed:
            if key in self._working:
                self._dirty.add(key)
            elif key not in self._waiting:
                self._enqueue(key)
                self._changed.notify()

    def _enqueue(self, key: Key) -> None:
        self._waiting[key] = self._clock()
        self._ready.append(key)
        self._adds += 1

    def add_after(self, key: Key, seconds: float) -> None:
        """Add the key when `seconds` have passed; it may be added sooner by others. Of several times the earliest holds."""
        with self._changed:
            self._schedule(key, max(seconds, 0.0))
            self._changed.notify()

    def _schedule(self, key: Key, seconds: float) -> None:
        due = self._clock() + seconds
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            heapq.heappush(self._later, (due, key))

    def take(self) -> Key | None:
        """The next key, waiting for one; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                key = self._next()
                if key is not None:
                    return key
                self._changed.wait(self._later[0][0] - self._clock() if self._later else None)
            return None

    def poll(self) -> Key | None:
        """The next key, or None when there is none now."""
        with self._changed:
            return None if self._closed else self._next()

    def seconds_to_next(self) -> float | None:
        """Until there may be a key to take: 0 when there is one, None when nothing is planned."""
        with self._changed:
            if self._ready:
                return 0.0
            return max(self._later[0][0] - self._clock(), 0.0) if self._later else None

    def _next(self) -> Key | None:
        self._wake()
        if not self._ready:
            return None
        key = self._ready.popleft()
        del self._waiting[key]
        self._working.add(key)
        return key

    def done(self, key: Key, *, failed: bool = False) -> None:
        """The key has been worked on; after a failure it comes back with exponential back-off."""
        with self._changed:
            self._working.discard(key)
            if failed:
                count = self._failures[key] = self._failures.get(key, 0) + 1
                delay = min(FIRST_BACKOFF_SECONDS * 2 ** min(count - 1, 20), MOST_BACKOFF_SECONDS)
                self._schedule(key, delay)
                self._retries += 1
            else:
                self._failures.pop(key, None)
            if key in self._dirty:
                self._dirty.discard(key)
                self._enqueue(key)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Keys that could be taken now."""
        with self._changed:
            self._wake()
            return len(self._ready)

    def state(self) -> QueueState:
        with self._changed:
            self._wake()
            oldest = self._clock() - self._waiting[self._ready[0]] if self._ready else 0.0
            return QueueState(len(self._ready), oldest, self._adds, self._retries, len(self._failures))

    def _wake(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, key = heapq.heappop(self._later)
            if self._due.get(key) != due:
                continue  # an earlier time has taken its place
            del self._due[key]
            if key in self._working:
                self._dirty.add(key)
            elif key not in self._waiting:
                self._enqueue(key)
