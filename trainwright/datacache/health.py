"""Answers the readiness probe of a cache's pod: 200 on `/ready` once its rows are in memory, 503 before."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MOST_THREADS = 64
"""Everybody of the machine can connect: beyond these threads of the process, connections are closed at once."""


class Health:
    """A web server at `address`, in a thread. Raises OSError if the port is in use."""

    def __init__(self, address: str, port: int):
        self.is_ready = False
        health = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5.0  # seconds without a request, so that others have room

            def do_GET(self) -> None:
                self.send_response(404 if self.path != "/ready" else 200 if health.is_ready else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log no probes."""

        class Server(ThreadingHTTPServer):
            def verify_request(self, *_: object) -> bool:
                return threading.active_count() < _MOST_THREADS

        self._server = Server((address, port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
