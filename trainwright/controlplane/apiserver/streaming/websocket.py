"""A server-side WebSocket for bytes, with a send timeout and an orderly close, and the open streams that a stopping server ends.

uvicorn implements the framing and backpressure: it stops reading while `receive` is not called, and `send` waits for the client.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import threading
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from trainwright.api.errors import ApiError

SLOW_SECONDS = 300.0
"""Time limit for a client to read what is sent."""
GOING_AWAY = 1001
_BEARER = "base64url.bearer.authorization.k8s.io."


class WebSocket:
    """An async context manager: accepts the handshake on entry and closes the connection on exit."""

    def __init__(self, receive: Receive, send: Send, streams: OpenStreams, protocol: str):
        self._receive, self._send, self._streams, self._protocol = receive, send, streams, protocol
        self._closed = False
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> WebSocket:
        self._loop = asyncio.get_running_loop()
        self._streams.add(self._stop)
        await self._send({"type": "websocket.accept", "subprotocol": self._protocol})
        return self

    async def __aexit__(self, *_: object) -> None:
        self._streams.discard(self._stop)
        await self.close(GOING_AWAY if self._stopped.is_set() else 1000)

    def _stop(self) -> None:
        """Called from another thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def until_stopped(self) -> None:
        """Wait until the server stops."""
        await self._stopped.wait()

    async def receive(self) -> bytes | None:
        """The next message; None after the client has closed."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._closed = True
                return None
            if message["type"] == "websocket.receive":
                data: bytes | None = message.get("bytes")
                return data if data is not None else str(message.get("text") or "").encode()

    async def send(self, data: bytes) -> None:
        """Send a message. Raises Gone."""
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send({"type": "websocket.send", "bytes": data})
        except (OSError, RuntimeError, TimeoutError) as error:  # OSError, RuntimeError: closed concurrently
            self._closed = True
            raise ConnectionClosed from error

    async def close(self, code: int) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send({"type": "websocket.close", "code": code})
        except (OSError, RuntimeError, TimeoutError) as error:  # closed concurrently, or the client does not read
            raise ConnectionClosed from error


class ConnectionClosed(Exception):
    """The client has disconnected or does not read."""


class UnsupportedProtocol(ApiError):
    """None of the client's subprotocols is supported."""

    code, reason = 403, "Forbidden"


def split_protocols(scope: Scope) -> tuple[list[str], str | None]:
    """The proposed subprotocols, and the bearer token that browsers send as one because they cannot set headers."""
    proposed: list[str] = []
    token = None
    for protocol in scope.get("subprotocols") or []:
        if not protocol.startswith(_BEARER):
            proposed.append(protocol)
            continue
        encoded = protocol.removeprefix(_BEARER)
        try:
            token = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError):  # an empty token is refused, unlike none
            token = ""
    return proposed, token


def negotiate_protocol(scope: Scope, spoken: tuple[str, ...]) -> str:
    """The first supported subprotocol in the client's order. Raises NoSuchProtocol."""
    proposed, _ = split_protocols(scope)
    for protocol in proposed:
        if protocol in spoken:
            return protocol
    raise UnsupportedProtocol(f"requested protocol(s) are not supported: {proposed}; supports {list(spoken)}")


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
