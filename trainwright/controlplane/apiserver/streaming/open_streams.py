"""Tracks open watches, followed logs and sessions, so that a stopping server can end them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class OpenStreams:
    """The open streams of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Callable[[], None]] = set()
        self.closed = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, end: Callable[[], None]) -> None:
        """Register the callback that ends a stream; calls it immediately if the server is already stopping."""
        with self._lock:
            if not self.closed:
                self._open.add(end)
                return
        end()

    def discard(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._open.discard(end)

    def close(self) -> None:
        """End all open and future streams."""
        with self._lock:
            self.closed = True
            open_ones = list(self._open)
        for end in open_ones:
            end()
