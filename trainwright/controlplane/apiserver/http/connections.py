"""HTTP connections with limits and timeouts.

Wraps uvicorn's httptools parser, which has no size limit for request headers and rejects unknown methods.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trainwright.controlplane.apiserver.http.raw_responses import raw_error
from trainwright.controlplane.apiserver.http.throttled_warning import ThrottledWarning
from trainwright.controlplane.apiserver.streaming.pieces import WRITE_BYTES
from trainwright.controlplane.apiserver.wire.responses import METHOD_NOT_ALLOWED

log = logging.getLogger(__name__)
_warn = ThrottledWarning(log)

HEAD_BYTES = 1024 * 1024
"""Maximum bytes of request line and headers; kube-apiserver's limit."""
_REQUEST_LINE = re.compile(rb"(?<![A-Z])([A-Z]{1,20}) /[!-~]*( HTTP/1\.[01]\r\n|\Z)")
"""A possibly incomplete request line: the parser fails at the first letters of an unknown method. The unread rest of an earlier
body may precede it."""
_KNOWN = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE")


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


def _descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


DEFAULT_TIMEOUTS = ConnectionTimeouts()


def connection(timeouts: ConnectionTimeouts) -> type[Connection]:
    """The connection protocol class for uvicorn."""
    return type("Connection", (Connection,), {"timeouts": timeouts, "stalled": set()})


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
        if found and found[-1][0] not in _KNOWN:
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
