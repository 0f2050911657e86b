"""Accepts connections, and limits those whose TLS handshake has not finished.

The event loop's own server neither counts nor bounds them: silent ones take all file descriptors, and real clients wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from trainwright.controlplane.apiserver.http.throttled_warning import ThrottledWarning

log = logging.getLogger(__name__)

_BATCH = 16
"""Connections accepted per event loop iteration, so that handshakes in progress continue in between."""
_PAUSE_SECONDS = 0.1
"""Time without accepting after the process has run out of file descriptors."""


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
                return
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
        except OSError as error:
            log.debug("event=handshake_failed error=%r", str(error))
