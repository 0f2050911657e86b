"""One client's connection: a parser that is fast, kept from what it would take without limit, and heard out where it gives up.

The parser knows the methods of HTTP and no others, and has no limit of its own on heads.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trainwright.controlplane.apiserver.wire.responses import WRONG_METHOD

log = logging.getLogger(__name__)

HEAD_BYTES = 1024 * 1024
"""Of a request's line and headers together; as kube-apiserver's."""
_REQUEST_LINE = re.compile(rb"(?<![A-Z])([A-Z]{1,20}) /[!-~]*( HTTP/1\.[01]\r\n|\Z)")
"""As far as it has come: the parser gives up at the first letters of a method that it does not know. The rest of a body that was
answered before it came may stand before it."""
_KNOWN = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE")
_PHRASES = {400: b"Bad Request", 405: b"Method Not Allowed", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


@dataclass(frozen=True)
class ConnectionTimeouts:
    """How long clients may take, in seconds, and how many there may be."""

    head: float = 32.0
    """From the beginning of a connection, or the first byte of a request, until its head is complete; as kube-apiserver's.
    Also for the rest of a body whose request has been answered already."""
    reading: float = 60.0
    """Without taking anything of an answer that waits, a watch for instance."""
    connections: int = 0
    """0: as many as leave the process half of its files."""

    @property
    def most_connections(self) -> int:
        return self.connections or max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


DEFAULT_TIMEOUTS = ConnectionTimeouts()


def connection(patience: ConnectionTimeouts) -> type[Connection]:
    """The protocol of a connection, for uvicorn."""
    return type("Connection", (Connection,), {"patience": patience})


class _Gathered:
    """A transport that sends in one piece what is written in one turn of the loop: the head of an answer with its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.write(data)


class Connection(HttpToolsProtocol):
    """HTTP/1.1, with limits on what comes before a request is one, and on clients that do not go on."""

    patience = DEFAULT_TIMEOUTS

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._is_in_head, self._head, self._received = False, 0, b""
        self._is_in_body = False
        self._overdue = _Timer(self.loop, self._late)
        self._reading = _Timer(self.loop, self._cut)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, _Gathered(transport, self.loop)))
        if len(self.connections) > self.patience.most_connections:
            self._make_room()
        self._overdue.start(self.patience.head)

    def data_received(self, data: bytes) -> None:
        if not self._is_in_head:
            self._received = data
        super().data_received(data)
        if not self._is_in_head:
            return
        self._head += len(data)
        if self._head > HEAD_BYTES:
            self._refuse(431, "RequestHeaderFieldsTooLarge", f"the head of the request is larger than {HEAD_BYTES} bytes")
        else:
            self._overdue.start(self.patience.head)

    def on_message_begin(self) -> None:
        self._is_in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._headed()
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._overdue.stop()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body:
            self._overdue.start(self.patience.head)
        if self.transport.is_closing():
            self._reading.start(self.patience.reading)

    def pause_writing(self) -> None:
        """More waits to be sent than should: the client has to read on."""
        super().pause_writing()
        self._reading.start(self.patience.reading)

    def resume_writing(self) -> None:
        self._reading.stop()
        super().resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being worked on."""
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._headed()
        self._reading.stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no request gets an answer that clients can read; an unknown method the one that it has everywhere."""
        found = _REQUEST_LINE.findall(self._received)
        if found and found[-1][0] not in _KNOWN:
            self._refuse(405, "MethodNotAllowed", WRONG_METHOD)
        else:
            self._refuse(400, "BadRequest", "the request could not be read as HTTP/1.1")

    def _headed(self) -> None:
        self._is_in_head = False
        self._overdue.stop()

    def _refuse(self, code: int, reason: str, message: str) -> None:
        """Say why, and hang up."""
        self._headed()
        if self.transport.is_closing():
            return
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        body = orjson.dumps({**status, "reason": reason, "details": {}, "code": code})
        head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self.transport.write(head % (code, _PHRASES[code], len(body)) + body)
        self.transport.close()

    def _late(self) -> None:
        """The head of a request has not come, or the rest of a body that nobody needs any more."""
        if self._is_in_head:
            self._refuse(408, "Timeout", "the head of the request did not come")
            self._reading.start(self.patience.reading)
        else:
            self._cut()

    def _cut(self) -> None:
        log.info("event=slow_client_cut")
        self.transport.abort()

    def _make_room(self) -> None:
        """Drop one connection that does nothing, this one where all others work."""
        idle = next((other for other in self.connections if other is not self and getattr(other, "is_idle", False)), self)
        log.warning("event=too_many_connections most=%d", self.patience.most_connections)
        idle.transport.abort()


class _Timer:
    """Calls once, so many seconds after it was started first, unless it is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]):
        self._loop, self._call = loop, call
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, self._call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
