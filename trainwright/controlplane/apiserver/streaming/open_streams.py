"""The watches and followed logs that are open just now, so that a server that stops can end them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Streams:
    """The open streams of one server, so that it can end them all. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Callable[[], None]] = set()
        self.closed = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, end: Callable[[], None]) -> None:
        """Remember how to end a stream; ends it at once when the server is already going."""
        with self._lock:
            if not self.closed:
                self._open.add(end)
                return
        end()

    def discard(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._open.discard(end)

    def close(self) -> None:
        """End every stream, and every later one."""
        with self._lock:
            self.closed = True
            open_ones = list(self._open)
        for end in open_ones:
            end()
