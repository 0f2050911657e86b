"""An application behind TLS on a loopback port, in a thread of this process, with a clean start and a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import threading
from asyncio.trsock import TransportSocket
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import uvicorn
from starlette.types import Receive, Scope, Send

from trainwright.controlplane.apiserver.http.connections import DEFAULT_TIMEOUTS, ConnectionTimeouts, connection
from trainwright.controlplane.apiserver.streaming.open_streams import Streams

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_GOODBYE_SECONDS = 0.1
"""What a client gets to read the last of an answer before its connection is dropped."""
_DRAIN_SECONDS = 5
"""What requests in flight get to finish once the streams have been ended."""

MESSAGE_BYTES = 16 * 1024 * 1024
"""The longest message of a WebSocket; official clients send what they are given in one."""


class PortInUse(OSError):
    """Somebody else listens on the port."""

    def __init__(self, host: str, port: int):
        super().__init__(
            errno.EADDRINUSE,
            f"port {port} on {host} is in use by another program; choose another port, or 0 for any that is free",
        )
        self.port = port


class Application(Protocol):
    """What can be served: an ASGI application that can end its long answers."""

    streams: Streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Serving:
    """A running server; `stop` it, or use it as a context."""

    def __init__(self, server: _Server, app: Application, thread: threading.Thread, host: str, port: int, tls: bool):
        self._server = server
        self._app = app
        self._thread = thread
        self.host = host
        self.port = port
        self.url = f"{'https' if tls else 'http'}://{host}:{port}"

    def reload(self, cert: Path, key: Path) -> None:
        """Prove itself with another certificate from now on; connections that are open stay as they are.

        Raises OSError, ssl.SSLError for files that are no such pair; then the old one stays in use.
        """
        context = self._server.config.ssl
        if context is None:
            raise ValueError("this server speaks plain HTTP")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            cert, key
        )  # a failure in the context in use could be half a change
        loaded = threading.Event()

        def load() -> None:
            context.load_cert_chain(cert, key)
            loaded.set()

        self._server.loop.call_soon_threadsafe(load)
        if not loaded.wait(_STOP_SECONDS):
            raise TimeoutError(f"the server at {self.url} has not taken its new certificate within {_STOP_SECONDS:.0f} seconds")

    def stop(self) -> None:
        """End the streams, let requests in flight finish, close the port. May be called again."""
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
    """Says when it is ready, or that it will never be; and does not wait for clients that do not answer its goodbye."""

    def __init__(self, config: uvicorn.Config):
        super().__init__(config)
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A connection over TLS that is closed twice, as uvicorn closes a WebSocket, can no longer be aborted: its socket can.
        known = [(one, one.transport.get_extra_info("socket")) for one in self.server_state.connections if one.transport]
        dismissal = asyncio.ensure_future(self._dismiss(dict(known)))
        try:
            await super().shutdown(sockets)
        finally:
            dismissal.cancel()

    async def _dismiss(self, known: dict[Any, TransportSocket]) -> None:
        """Drop idle connections: over TLS, a client that keeps one in its pool would hold up the stop for seconds."""
        while True:
            await asyncio.sleep(_GOODBYE_SECONDS)
            if not self.server_state.tasks:
                for connection in list(self.server_state.connections):
                    connection.transport.abort()
                    if connection in known:
                        with contextlib.suppress(OSError):
                            known[connection].shutdown(socket.SHUT_RDWR)


def serve(
    app: Application,
    host: str = LOOPBACK,
    port: int = 0,
    cert: Path | None = None,
    key: Path | None = None,
    *,
    patience: ConnectionTimeouts = DEFAULT_TIMEOUTS,
) -> Serving:
    """Serve `app` (from `create_app`) until it is stopped; port 0 takes a free one, which `Serving.port` tells.

    Without certificate and key it speaks plain HTTP, over which kubectl sends no token.
    Raises PortInUse, ValueError for a host that is not this machine's loopback.
    """
    if host not in (LOOPBACK, "localhost"):
        raise ValueError(f"host: {host!r}: the embedded API server listens on {LOOPBACK} only")
    listener = _listen(LOOPBACK, port)
    config = uvicorn.Config(
        app,
        ssl_certfile=cert,
        ssl_keyfile=key,
        access_log=False,
        log_config=None,
        log_level="warning",
        loop="uvloop",
        http=connection(patience),
        lifespan="off",
        proxy_headers=False,
        ws="wsproto",  # the other one refuses the name of the protocol by which kubectl forwards ports
        ws_max_size=MESSAGE_BYTES,
        ws_ping_interval=None,  # a client that waits for a slow command reads no pings, and one that has gone shows by TCP
        ws_per_message_deflate=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)  # only once, however many servers there are
    server = _Server(config)
    thread = threading.Thread(target=_run, args=(server, listener), name="apiserver", daemon=True)
    thread.start()
    if not server.ready.wait(_START_SECONDS) or not server.started:
        server.should_exit = True
        raise RuntimeError(f"the API server did not start on port {port} within {_START_SECONDS:.0f} seconds; see the log")
    serving = Serving(server, app, thread, LOOPBACK, listener.getsockname()[1], cert is not None)
    log.info("event=server_started url=%s", serving.url)
    return serving


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn complains of a protocol that it does not speak, which the client is told by the answer."""
    return not record.getMessage().startswith("Unsupported upgrade request")


def _run(server: _Server, listener: socket.socket) -> None:
    try:
        server.run(sockets=[listener])
    except BaseException:
        log.exception("event=server_failed")
    finally:
        server.ready.set()
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port whose last connections linger in TIME_WAIT may be taken again; one that is listened on may not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise
    listener.setblocking(False)
    return listener
