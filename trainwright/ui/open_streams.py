"""The open streams of a server, so that it can end them: a server that stops waits for the requests that are in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class OpenStreams:
    """Counts streams, and tells all of them to end. `on_close` makes those that wait for a change look. Thread-safe."""

    def __init__(self, *, on_close: Callable[[], None]):
        self._on_close = on_close
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def opened(self) -> Iterator[threading.Event]:
        """Count a stream; yields an event that is set when it has to end."""
        with self._lock:
            self._count += 1
        try:
            yield self._closed
        finally:
            with self._lock:
                self._count -= 1

    def close(self) -> None:
        """End all streams. Idempotent."""
        self._closed.set()
        self._on_close()
