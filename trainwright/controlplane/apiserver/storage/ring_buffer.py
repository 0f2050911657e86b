"""A ring buffer bounded in both items and bytes: two thousand small objects take little memory, as many of 3 MB exhaust it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class RingBuffer(Generic[T]):
    """A queue that drops its oldest items; the newest always stays. Not thread-safe."""

    def __init__(self, most: int, most_bytes: int):
        self._most, self._most_bytes = most, most_bytes
        self._things: deque[tuple[T, int]] = deque()
        self.bytes = 0

    def append(self, thing: T, size: int) -> list[T]:
        """Add an item of `size` bytes. Returns the dropped items, oldest first."""
        self._things.append((thing, size))
        self.bytes += size
        gone = []
        while len(self._things) > self._most or (self.bytes > self._most_bytes and len(self._things) > 1):
            oldest, size = self._things.popleft()
            self.bytes -= size
            gone.append(oldest)
        return gone

    def __len__(self) -> int:
        return len(self._things)

    def __reversed__(self) -> Iterator[T]:
        return (thing for thing, _ in reversed(self._things))
