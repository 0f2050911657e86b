"""What has come for somebody who reads it later: a bounded queue, whose writers wait, and are let go when nobody reads any more."""

from __future__ import annotations

import asyncio
from collections import deque


class Channel:
    """Belongs to one event loop; one reader. An empty piece is put, and got, for the end."""

    def __init__(self, most: int):
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._ready, self._room = asyncio.Event(), asyncio.Event()
        self._closed = False

    async def put(self, piece: bytes) -> None:
        """Waits while there is no room; what comes after `close` is dropped."""
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
        """Nobody reads any more."""
        self._closed = True
        self._pieces.clear()
        self._ready.set()
        self._room.set()
