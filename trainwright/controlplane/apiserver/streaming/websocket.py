"""A WebSocket of a client: bytes both ways, with a deadline for clients that do not read, and a goodbye.

The framing is uvicorn's; it stops reading from the network while nobody receives, and `send` waits while the client does not read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii

from starlette.types import Receive, Scope, Send

from trainwright.api.errors import ApiError
from trainwright.controlplane.apiserver.streaming.open_streams import Streams

SLOW_SECONDS = 300.0
"""How long a client may leave what is sent to it unread."""
GOING_AWAY = 1001
_BEARER = "base64url.bearer.authorization.k8s.io."


class Gone(Exception):
    """The client has gone, or does not read what it is sent."""


class NoSuchProtocol(ApiError):
    """None of the protocols that a client proposes is spoken here."""

    code, reason = 403, "Forbidden"


def split_protocols(scope: Scope) -> tuple[list[str], str | None]:
    """The protocols that a client proposes, and the token that a browser hides among them, having no other place for it."""
    proposed: list[str] = []
    token = None
    for protocol in scope.get("subprotocols") or []:
        if not protocol.startswith(_BEARER):
            proposed.append(protocol)
            continue
        encoded = protocol.removeprefix(_BEARER)
        try:
            token = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError):
            token = ""
    return proposed, token


def chosen_protocol(scope: Scope, spoken: tuple[str, ...]) -> str:
    """The first protocol that both speak, by the client's order. Raises NoSuchProtocol."""
    proposed, _ = split_protocols(scope)
    for protocol in proposed:
        if protocol in spoken:
            return protocol
    raise NoSuchProtocol(f"requested protocol(s) are not supported: {proposed}; supports {list(spoken)}")


class WebSocket:
    """Begins with the answer to the client's handshake, in `async with`; ends with the block, or with the server."""

    def __init__(self, receive: Receive, send: Send, streams: Streams, protocol: str):
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
        """From another thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def until_stopped(self) -> None:
        """Returns when the server stops."""
        await self._stopped.wait()

    async def receive(self) -> bytes | None:
        """The next message, None when the client has closed."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._closed = True
                return None
            if message["type"] == "websocket.receive":
                data: bytes | None = message.get("bytes")
                return data if data is not None else str(message.get("text") or "").encode()

    async def send(self, data: bytes) -> None:
        """Raises Gone."""
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send({"type": "websocket.send", "bytes": data})
        except (OSError, RuntimeError, TimeoutError) as error:  # OSError, RuntimeError: it was closed in between
            self._closed = True
            raise Gone from error

    async def close(self, code: int) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._send({"type": "websocket.close", "code": code})
        except (OSError, RuntimeError, TimeoutError) as error:
            raise Gone from error
