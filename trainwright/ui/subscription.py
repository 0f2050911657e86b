"""Carries changes from the thread of a watch to the event loop of a stream, and merges those that a slow client has not read yet.

What waits is at most one entry per key, so that a client that reads slowly costs no more memory than the state itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Hashable

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
        if not self._loop.is_closed():
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
