"""A bounded queue of byte chunks with backpressure: writers wait while it is full, and are released when the reader closes it."""

from __future__ import annotations

import asyncio
from collections import deque


class Channel:
    """A queue for one event loop and one reader. An empty chunk marks the end."""

    def __init__(self, most: int):
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._ready, self._room = asyncio.Event(), asyncio.Event()
        self._closed = False

    async def put(self, piece: bytes) -> None:
        """Add a chunk, waiting while the queue is full; dropped after `close`."""
        while len(self._pieces) >= self._most and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._pieces.append(piece)
            self._ready.set()

    async def get(self) -> bytes:
        while not self._pieces:
            if self._closed:
                return b""
            self._ready.clear()
            await self._ready.wait()
        self._room.set()
        return self._pieces.popleft()

    def close(self) -> None:
        """Stop reading: discard queued chunks and release waiting writers."""
        self._closed = True
        self._pieces.clear()
        self._ready.set()
        self._room.set()
