"""Serves the page in the foreground, until it is interrupted: `trainwright ui` on a cluster that does not serve it itself."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from trainwright.ui.app import PREFIX, PageApp

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names in `Host` that a server on loopback answers to: another name that resolves to this machine is an attack."""
_BACKLOG, _GRACE_SECONDS = 128, 2


class AddressInUse(Exception):
    """The address cannot be listened on. The message says why, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes any free one. Raises AddressInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressInUse(f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another --port") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of the page, with a slash at its end."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PREFIX}/"


def serve_until_stopped(app: PageApp, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` is called once, when requests are answered."""
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    _Server(config, app, on_ready).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: PageApp, on_ready: Callable[[], None]):
        super().__init__(config)
        self._app, self._on_ready = app, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.close()
        await super().shutdown(sockets)
