"""`/healthz`, `/readyz` and `/metrics` of a controller, over plain HTTP: nothing there names an object or holds a secret."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trainwright.controlplane.exposition import CONTENT_TYPE

Page = Callable[[], tuple[int, str]]
"""Code and text of an answer."""
_PATIENCE_SECONDS = 10


@contextmanager
def served(address: str, port: int, pages: dict[str, Page]) -> Iterator[int]:
    """Serve the pages by path, in threads, until the context ends; gives the port. Raises OSError for an address that is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS  # a client that says nothing

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            code, text = page() if page is not None else (404, "404 page not found\n")
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds."""

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name=f"http-{port}", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
