"""Connections of clients that are slow, silent, or too many: they are cut, and nobody else waits for them.

Go's server has the same limits; uvicorn has none for a header that never ends or a reader who has stopped reading.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

MOST_HEADERS = 64 * 1024
"""Bytes of a request line with its headers."""


@dataclass(frozen=True)
class Patience:
    """How long a client may take, in seconds, and how many there may be."""

    header: float = 32.0
    """From the first byte of a connection, or of a later request, to the end of its headers; as kube-apiserver's."""
    reading: float = 60.0
    """Without taking anything of an answer that waits for it, a watch for instance."""
    connections: int = 0
    """0: as many as leave the process half of its files."""

    @property
    def most_connections(self) -> int:
        return self.connections or max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def impatient(patience: Patience) -> type[H11Protocol]:
    """The protocol of one connection, for uvicorn."""
    return type("Connection", (_Connection,), {"patience": patience})


class _Connection(H11Protocol):
    patience = Patience()

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **named)
        self._sending = _Timer(self.loop, self._cut, "sending")
        self._reading = _Timer(self.loop, self._cut, "reading")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.patience.most_connections:
            self._make_room()
        self._sending.start(self.patience.header)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sending.stop()
        self._reading.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._owes_something():
            self._sending.start(self.patience.header)
        else:
            self._sending.stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._owes_something():
            self._sending.start(self.patience.header)
        if self.transport.is_closing():
            self._reading.start(self.patience.reading)

    def pause_writing(self) -> None:
        """More waits to be sent than should: the client has to read on."""
        self.flow.pause_writing()
        self._reading.start(self.patience.reading)

    def resume_writing(self) -> None:
        self._reading.stop()
        self.flow.resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being worked on."""
        return self.cycle is None or self.cycle.response_complete

    def _owes_something(self) -> bool:
        """Whether the client has begun a header, or not finished a body that has been answered already."""
        theirs = self.conn.their_state
        return (theirs is h11.IDLE and bool(self.conn.trailing_data[0])) or (
            theirs is h11.SEND_BODY and self.conn.our_state is h11.DONE
        )

    def _make_room(self) -> None:
        """Drop one connection that does nothing, this one where all others work."""
        idle = next((other for other in self.connections if other is not self and getattr(other, "is_idle", False)), self)
        log.warning("event=too_many_connections most=%d", self.patience.most_connections)
        idle.transport.abort()

    def _cut(self, what: str) -> None:
        log.info("event=connection_cut too_slow=%s", what)
        self.transport.abort()


class _Timer:
    """Calls once, so many seconds after it was started first, unless it is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[str], None], what: str):
        self._loop, self._call, self._what = loop, call, what
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, self._call, self._what)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
