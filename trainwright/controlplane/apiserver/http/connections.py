"""HTTP connections with limits and timeouts, and the acceptor that limits those whose TLS handshake has not finished.

Wraps uvicorn's httptools parser, which has no size limit for request headers and rejects unknown methods, and its WebSockets: wsproto
decodes some headers as ASCII and the host as a domain name, and lets the error pass. The event loop's own server neither counts nor
bounds connections: silent ones take all file descriptors, and real clients wait. Clients can cause warnings as often as they like, so
that these are logged at intervals.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import resource
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from trainwright.controlplane.apiserver.wire.responses import METHOD_NOT_ALLOWED, WRITE_BYTES

HEAD_BYTES = 1024 * 1024
"""Maximum bytes of request line and headers; kube-apiserver's limit."""
_REQUEST_LINE = re.compile(rb"(?<![A-Z])([A-Z]{1,20}) /[!-~]*( HTTP/1\.[01]\r\n|\Z)")
"""A possibly incomplete request line: the parser fails at the first letters of an unknown method. The unread rest of an earlier
body may precede it."""
_KNOWN_METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE")
_BATCH = 16
"""Connections accepted per event loop iteration, so that handshakes in progress continue in between."""
_PAUSE_SECONDS = 0.1
"""Time without accepting after the process has run out of file descriptors."""
_REASON_PHRASES = {
    400: b"Bad Request",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
}
log = logging.getLogger(__name__)


def connection(timeouts: ConnectionTimeouts) -> type[Connection]:
    """The connection protocol class for uvicorn."""
    return type("Connection", (Connection,), {"timeouts": timeouts, "stalled": set()})


class Acceptor:
    """Accepts from a listening socket until it is closed. Lives in one event loop.

    At most `most_handshakes` handshakes are in progress; a further connection takes the place of the oldest, which the client
    has had the most time for. Each is aborted after `handshake_seconds`.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        *,
        handshake_seconds: float,
        most_handshakes: int,
    ):
        self._listener, self._protocol, self._context = listener, protocol, context
        self._handshake_seconds, self._most_handshakes = handshake_seconds, most_handshakes
        self._loop = asyncio.get_running_loop()
        self._warn = ThrottledWarning(log)
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """Oldest first."""
        self._paused: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Stop accepting and abort the handshakes in progress. The caller closes the socket."""
        self._loop.remove_reader(self._listener)
        if self._paused is not None:
            self._paused.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return  # none is waiting any more
            except OSError as error:  # no more file descriptors
                self._warn("event=accept_failed handshakes=%d error=%s", len(self._handshakes), error)
                self._abort_oldest()
                self._loop.remove_reader(self._listener)
                self._paused = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            accepted.setblocking(False)
            self._begin(accepted)

    def _begin(self, accepted: socket.socket) -> None:
        if len(self._handshakes) >= self._most_handshakes:
            self._warn("event=too_many_handshakes most=%d", self._most_handshakes)
            self._abort_oldest()
        handshake = self._loop.create_task(self._connect(accepted))
        self._handshakes[handshake] = None
        handshake.add_done_callback(lambda done: self._end(done, accepted))

    def _end(self, handshake: asyncio.Task[None], accepted: socket.socket) -> None:
        self._handshakes.pop(handshake, None)
        if handshake.cancelled():
            accepted.close()  # no transport does it if the task was cancelled before it began

    def _abort_oldest(self) -> None:
        oldest = next(iter(self._handshakes), None)
        if oldest is not None:
            del self._handshakes[oldest]
            oldest.cancel()

    async def _connect(self, accepted: socket.socket) -> None:
        timeout = self._handshake_seconds if self._context is not None else None
        try:
            await self._loop.connect_accepted_socket(self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=timeout)
        except OSError as error:  # a client that speaks no TLS, or has gone
            log.debug("event=handshake_failed error=%r", str(error))


@dataclass(frozen=True)
class ConnectionTimeouts:
    """Timeouts of client connections in seconds, and their maximum number."""

    handshake: float = 10.0
    """For a client to complete the TLS handshake; Go's default timeout for it."""
    head: float = 32.0
    """From the start of a connection, or the first byte of a request, until the headers are complete; kube-apiserver's timeout.
    Also for the rest of a body after its response was sent."""
    reading: float = 60.0
    """For a client to read pending data of a response, for example of a watch."""
    stalled: int = 64
    """Clients with pending data that have that long. If there are more, each further one has `reading_of_many`: they hold memory."""
    reading_of_many: float = 2.0
    connections: int = 0
    """Maximum number; 0 for half of the process's file descriptor limit."""
    handshakes: int = 0
    """Maximum number of connections before the end of their TLS handshake, not counted in `connections`; 0 for an eighth of the
    process's file descriptor limit."""

    @property
    def max_connections(self) -> int:
        return self.connections or max(64, _descriptors() // 2)

    @property
    def max_handshakes(self) -> int:
        return self.handshakes or max(32, _descriptors() // 8)


DEFAULT_TIMEOUTS = ConnectionTimeouts()


def _descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Connection(HttpToolsProtocol):
    """HTTP/1.1 with limits on request headers and timeouts for stalled clients."""

    timeouts = DEFAULT_TIMEOUTS
    stalled: ClassVar[set[Connection]]
    """Those of this server whose clients have pending data to read."""

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._is_in_head, self._head, self._received = False, 0, b""
        self._is_in_body = False
        self._idle_since = self.loop.time()
        self._overdue = _Timer(self.loop, self._late)
        self._reading = _Timer(self.loop, self._cut)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(WRITE_BYTES)  # over TLS it would be 512 KiB
        super().connection_made(cast(asyncio.Transport, _Gathered(transport, self.loop)))
        if len(self.connections) > self.timeouts.max_connections:
            self._make_room()
        self._overdue.start(self.timeouts.head)

    def data_received(self, data: bytes) -> None:
        if not self._is_in_head:
            self._received = data
        super().data_received(data)
        if not self._is_in_head:
            if self.is_idle:  # blank lines: they begin no request, but have ended the timeout of an idle connection
                self._overdue.start(self.timeouts.head)
            return
        self._head += len(data)
        if self._head > HEAD_BYTES:
            self._refuse(431, "RequestHeaderFieldsTooLarge", f"the request headers are larger than {HEAD_BYTES} bytes")
        else:
            self._overdue.start(self.timeouts.head)

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
        self._idle_since = self.loop.time()
        if self._is_in_body:
            self._overdue.start(self.timeouts.head)
        if self.transport.is_closing():
            self._reading.start(self.timeouts.reading)

    def pause_writing(self) -> None:
        """The write buffer is full: start the timeout for the client to read."""
        super().pause_writing()
        self.stalled.add(self)
        few = len(self.stalled) <= self.timeouts.stalled
        self._reading.start(self.timeouts.reading if few else self.timeouts.reading_of_many * random.uniform(0.5, 1.5))

    def resume_writing(self) -> None:
        self._reading.stop()
        self.stalled.discard(self)
        super().resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def idle_rank(self) -> tuple[bool, float]:
        """Order in which idle connections make room: those that never sent a request first, then the longest idle."""
        return self.cycle is not None, self._idle_since

    def connection_lost(self, exc: Exception | None) -> None:
        self._headed()
        self._reading.stop()
        self.stalled.discard(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Return a Status for malformed requests, and the usual 405 for unknown methods."""
        found = _REQUEST_LINE.findall(self._received)
        if found and found[-1][0] not in _KNOWN_METHODS:
            self._refuse(405, "MethodNotAllowed", METHOD_NOT_ALLOWED)
        else:
            self._refuse(400, "BadRequest", "the request is not valid HTTP/1.1")

    def _headed(self) -> None:
        self._is_in_head = False
        self._overdue.stop()

    def _refuse(self, code: int, reason: str, message: str) -> None:
        """Send an error and close the connection."""
        self._headed()
        if self.transport.is_closing():
            return
        self.transport.write(raw_error(code, reason, message))
        self.transport.close()

    def _late(self) -> None:
        """The timeout for request headers, or for the rest of an unneeded body, has expired."""
        if self._is_in_head:
            self._refuse(408, "Timeout", "timed out waiting for the request headers")
            self._reading.start(self.timeouts.reading)
        else:
            self._cut()

    def _cut(self) -> None:
        log.info("event=slow_client_disconnected")
        self.transport.abort()

    def _make_room(self) -> None:
        """Abort an idle connection, or this one if all others are busy."""
        idle = [other for other in self.connections if other is not self and isinstance(other, Connection) and other.is_idle]
        _warn("event=too_many_connections most=%d", self.timeouts.max_connections)
        min(idle, key=lambda other: other.idle_rank, default=self).transport.abort()


class _Timer:
    """Calls a function once, a number of seconds after the first `start`, unless stopped before."""

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


class _Gathered:
    """A transport that merges small writes of one event loop iteration, for example response headers and body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size >= WRITE_BYTES:
            self._flush()  # now, so that the next write knows whether it has to wait

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if data and not self._transport.is_closing():
            self._transport.write(data)


class WebSocketConnection(WSProtocol):
    """uvicorn's WebSocket, which returns 400 for headers that are not text."""

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except UnicodeError:  # from wsproto
            if not self.handshake_complete:
                self.transport.write(raw_error(400, "BadRequest", "the headers of the WebSocket handshake are not ASCII"))
            self.transport.close()


def raw_error(code: int, reason: str, message: str) -> bytes:
    """A whole HTTP response with a Status, after which the connection is to be closed."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    body = orjson.dumps({**status, "reason": reason, "details": {}, "code": code})
    head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (code, _REASON_PHRASES[code], len(body)) + body


class ThrottledWarning:
    """Logs at most one warning in `seconds`, with the number of those that were left out since."""

    def __init__(self, log: logging.Logger, seconds: float = 10.0):
        self._log, self._seconds = log, seconds
        self._next, self._omitted = 0.0, 0

    def __call__(self, message: str, *arguments: object) -> None:
        """Log `message`, formatted with the arguments, or count it."""
        now = time.monotonic()
        if now < self._next:
            self._omitted += 1
            return
        self._log.warning(f"{message} omitted=%d", *arguments, self._omitted)
        self._next, self._omitted = now + self._seconds, 0


_warn = ThrottledWarning(log)
