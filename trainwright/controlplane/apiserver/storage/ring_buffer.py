"""The last things that happened: so many, and no more than so many bytes of them. Two thousand small objects are little, as many of
three megabytes are all the memory there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class RingBuffer(Generic[T]):
    """A queue that forgets its oldest; the newest always stays. Not for two threads at a time."""

    def __init__(self, most: int, most_bytes: int):
        self._most, self._most_bytes = most, most_bytes
        self._things: deque[tuple[T, int]] = deque()
        self.bytes = 0

    def append(self, thing: T, size: int) -> list[T]:
        """Remember one more thing; returns what is forgotten for it, oldest first."""
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
