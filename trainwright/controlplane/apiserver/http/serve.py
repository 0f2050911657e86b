"""Serves an application in a thread, with limits for its connections and orderly startup and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import threading
from asyncio.trsock import TransportSocket
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import uvicorn
from starlette.types import Receive, Scope, Send

from trainwright.controlplane.apiserver.http.connections import (
    DEFAULT_TIMEOUTS,
    Acceptor,
    ConnectionTimeouts,
    WebSocketConnection,
    connection,
)

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_BACKLOG = 2048
"""Connections that the system holds until they are accepted: beyond it, a client tries again after a second."""
_SEND_BYTES = 128 * 1024
"""What the system holds of a response that is not read. Without a limit it takes megabytes of each."""
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_GOODBYE_SECONDS = 0.1
"""Time for clients to read the end of a response before idle connections are aborted."""
_DRAIN_SECONDS = 5
"""Time for requests in flight to finish after the streams have ended."""

MESSAGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a WebSocket message; official clients send their input in a single message."""


class PortInUse(OSError):
    """Another program listens on the port."""

    def __init__(self, host: str, port: int):
        super().__init__(
            errno.EADDRINUSE,
            f"port {port} on {host} is in use by another program; choose another port, or 0 for any free port",
        )
        self.port = port


class Streams(Protocol):
    """The open streams of an application."""

    def close(self) -> None:
        """End all open and future streams."""


class Application(Protocol):
    """An ASGI application that can end its open streams."""

    @property
    def streams(self) -> Streams: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Serving:
    """A running server; call `stop`, or use it as a context manager."""

    def __init__(self, server: _Server, app: Application, thread: threading.Thread, host: str, port: int, tls: bool):
        self._server = server
        self._app = app
        self._thread = thread
        self.host = host
        self.port = port
        self.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def reload(self, cert: Path, key: Path) -> None:
        """Use another certificate for new connections.

        Raises OSError, ssl.SSLError for invalid files; the old certificate then stays in use.
        """
        context = self._server.config.ssl
        if context is None:
            raise ValueError("this server does not use TLS")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            cert, key
        )  # validated first, because a failure could leave the active context half changed
        loaded = threading.Event()

        def load() -> None:
            context.load_cert_chain(cert, key)
            loaded.set()

        self._server.loop.call_soon_threadsafe(load)
        if not loaded.wait(_STOP_SECONDS):
            raise TimeoutError(f"the server at {self.url} did not load its new certificate within {_STOP_SECONDS:.0f} seconds")

    def stop(self) -> None:
        """End the streams, let requests in flight finish, close the port. Idempotent."""
        self._app.streams.close()
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            log.warning("event=server_stop_slow url=%s seconds=%s", self.url, _STOP_SECONDS)
            self._server.force_exit = True
            self._thread.join(_STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """A uvicorn server that signals when startup has finished or failed, and aborts idle connections on shutdown."""

    def __init__(self, config: uvicorn.Config, timeouts: ConnectionTimeouts):
        super().__init__(config)
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._timeouts = timeouts
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            self._acceptors = [self._acceptor(listener) for listener in sockets or []]
            await super().startup([])
        finally:
            self.ready.set()

    def _acceptor(self, listener: socket.socket) -> Acceptor:
        return Acceptor(
            listener,
            self._connection,
            self.config.ssl,
            handshake_seconds=self._timeouts.handshake,
            most_handshakes=self._timeouts.max_handshakes,
        )

    def _connection(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=self.loop
        )
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        # uvicorn closes WebSockets twice; over TLS such a transport can no longer be aborted, but its socket can be shut down.
        known = [(one, one.transport.get_extra_info("socket")) for one in self.server_state.connections if one.transport]
        dismissal = asyncio.ensure_future(self._dismiss(dict(known)))
        try:
            await super().shutdown(sockets)
        finally:
            dismissal.cancel()

    async def _dismiss(self, known: dict[Any, TransportSocket]) -> None:
        """Abort idle connections: over TLS, pooled client connections would delay the shutdown for seconds."""
        while True:
            await asyncio.sleep(_GOODBYE_SECONDS)
            if not self.server_state.tasks:
                for connection in list(self.server_state.connections):
                    connection.transport.abort()
                    if connection in known:
                        _shut_down(known[connection])


def _shut_down(transport_socket: TransportSocket) -> None:
    """Shut a connection down by its descriptor: the sockets of uvloop's transports have no `shutdown`."""
    # An OSError: the client was faster.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(transport_socket.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


def serve(
    app: Application,
    host: str = LOOPBACK,
    port: int = 0,
    cert: Path | None = None,
    key: Path | None = None,
    *,
    beyond_loopback: bool = False,
    timeouts: ConnectionTimeouts = DEFAULT_TIMEOUTS,
) -> Serving:
    """Serve `app` until it is stopped. Port 0 selects a free port, available as `Serving.port`.

    Without certificate and key it serves plain HTTP, over which kubectl sends no token. Other machines are served only with
    `beyond_loopback`. Raises PortInUse, OSError, ValueError for a host that is not loopback.
    """
    if host == "localhost":
        host = LOOPBACK
    if not beyond_loopback and host != LOOPBACK:
        raise ValueError(f"host: {host!r}: the embedded API server listens on {LOOPBACK} only")
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        ssl_certfile=cert,
        ssl_keyfile=key,
        access_log=False,
        log_config=None,
        log_level="warning",
        loop="uvloop",
        http=connection(timeouts),
        lifespan="off",
        proxy_headers=False,
        ws=WebSocketConnection,  # of wsproto: `websockets` rejects the name of kubectl's port-forward subprotocol
        ws_max_size=MESSAGE_BYTES,
        ws_ping_interval=None,  # clients waiting for a slow command do not answer pings; TCP detects disconnected ones
        ws_per_message_deflate=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)  # adding the same filter again has no effect
    server = _Server(config, timeouts)
    thread = threading.Thread(target=_run, args=(server, listener), name="apiserver", daemon=True)
    thread.start()
    if not server.ready.wait(_START_SECONDS) or not server.started:
        server.should_exit = True
        raise RuntimeError(f"the server did not start on port {port} within {_START_SECONDS:.0f} seconds; see the log")
    serving = Serving(server, app, thread, host, listener.getsockname()[1], cert is not None)
    log.info("event=server_started url=%s", serving.url)
    return serving


def _is_news(record: logging.LogRecord) -> bool:
    """Drops uvicorn's warnings about unsupported upgrades: the client gets an error response."""
    return not record.getMessage().startswith("Unsupported upgrade request")


def _run(server: _Server, listener: socket.socket) -> None:
    try:
        server.run(sockets=[listener])
    except BaseException:  # nobody joins the thread for its error
        log.exception("event=server_failed")
    finally:
        server.ready.set()
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Allows binding while old connections are in TIME_WAIT, but not while another process listens.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # of accepted connections, too
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise
    listener.setblocking(False)
    return listener
