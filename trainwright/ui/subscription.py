"""Carries changes from the thread of a watch to the event loop of a stream, and merges those that a slow client has not read yet.

What waits is at most one entry per key, so that a client that reads slowly costs no more memory than the state itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Hashable, Iterator

BEAT_SECONDS = 15.0
"""After which a stream says that it is alive: a client, or a proxy, would otherwise take silence for a lost connection."""
_MERGE_SECONDS = 0.1


class Subscription:
    """The changed keys of one subscriber. Create it in the event loop that reads it; `mark` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed: set[Hashable] = set()
        self._lock = threading.Lock()
        self._wake = asyncio.Event()
        self._is_closed = False

    def mark(self, key: Hashable) -> None:
        """Note that the state of `key` has changed."""
        with self._lock:
            is_first = not self._changed
            self._changed.add(key)
        if is_first:
            self._notify()

    def close(self) -> None:
        """End the iteration."""
        self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._wake.set)

    async def changes(
        self, *, beat_seconds: float = BEAT_SECONDS, merge_seconds: float = _MERGE_SECONDS
    ) -> AsyncIterator[set[Hashable]]:
        """Yield sets of changed keys, and an empty set after `beat_seconds` without changes."""
        while not self._is_closed:
            try:
                await asyncio.wait_for(self._wake.wait(), beat_seconds)
            except TimeoutError:
                yield set()
                continue
            if self._is_closed:
                return
            await asyncio.sleep(merge_seconds)
            self._wake.clear()
            with self._lock:
                changed, self._changed = self._changed, set()
            if changed:
                yield changed


class Subscribers:
    """All that are subscribed to one source of changes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Subscription] = set()
        self._idle_since = time.monotonic()
        self._is_closed = False

    @property
    def idle_seconds(self) -> float:
        """How long there have been none; 0 with some."""
        with self._lock:
            return 0.0 if self._open else time.monotonic() - self._idle_since

    @contextlib.contextmanager
    def joined(self) -> Iterator[Subscription]:
        """Subscribe in the block. Enter it in the event loop that reads the subscription."""
        subscription = Subscription()
        with self._lock:
            self._open.add(subscription)
            is_closed = self._is_closed
        if is_closed:
            subscription.close()
        try:
            yield subscription
        finally:
            with self._lock:
                self._open.discard(subscription)
                self._idle_since = time.monotonic()

    def mark(self, key: Hashable) -> None:
        """Note that the state of `key` has changed."""
        for subscription in self._all():
            subscription.mark(key)

    def close(self) -> None:
        """End the iterations of all, and of those that subscribe later."""
        with self._lock:
            self._is_closed = True
        for subscription in self._all():
            subscription.close()

    def _all(self) -> tuple[Subscription, ...]:
        with self._lock:
            return tuple(self._open)
