"""Watches that several pages share: each starts with its first reader, and stops a while after the last, so that a reload finds it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from trainwright.api.errors import ServiceUnavailable
from trainwright.ui.call import Json

_LINGER_SECONDS = 60.0


class SharedWatch(Protocol):
    """What several pages read, from its creation until it is stopped."""

    @property
    def idle_seconds(self) -> float:
        """How long nobody has read it."""
        ...

    def updates(self) -> AsyncGenerator[Json, None]:
        """Yield what is sent to the pages, until it is stopped."""
        ...

    def stop(self) -> None:
        """Stop watching, and end the updates of all readers."""
        ...


K = TypeVar("K", bound=Hashable)
W = TypeVar("W", bound=SharedWatch)


class SharedWatches(Generic[K, W]):
    """The watches of a server by key, which has that of the credentials: pages of others never see them. Thread-safe.

    At most `limit` are open, and `refusal` is what further ones are answered with.
    """

    def __init__(self, limit: int, refusal: str):
        self._limit, self._refusal = limit, refusal
        self._lock = threading.Lock()
        self._open: dict[K, W] = {}
        self._is_closed = False

    def of(self, key: K, start: Callable[[], W]) -> W:
        """Return the watch of the key, which is started if it is not open. Raises ServiceUnavailable if too many are."""
        self.stop_idle()
        with self._lock:
            watch = self._open.get(key)
            if watch is None:
                if len(self._open) >= self._limit:
                    raise ServiceUnavailable(f"{self._refusal}; close some pages")
                watch = self._open[key] = start()
            if self._is_closed:
                watch.stop()
            return watch

    async def updates(self, key: K, start: Callable[[], W]) -> AsyncGenerator[Json, None]:
        """Yield the updates of the watch of the key."""
        watch = self.of(key, start)
        try:
            async with aclosing(watch.updates()) as updates:
                async for update in updates:
                    yield update
        finally:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.stop_idle)

    def stop_idle(self) -> None:
        """Stop the watches that nobody has read for a while."""
        with self._lock:
            for key in [key for key, watch in self._open.items() if watch.idle_seconds >= _LINGER_SECONDS]:
                self._open.pop(key).stop()

    def close(self) -> None:
        """Stop all watches, and end their updates."""
        with self._lock:
            self._is_closed = True
            watches = tuple(self._open.values())
        for watch in watches:
            watch.stop()
