"""`/healthz`, `/readyz` and `/metrics` of a controller, over plain HTTP, since they contain no object names or secrets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trainwright.controlplane.exposition import CONTENT_TYPE

Page = Callable[[], tuple[int, str]]
"""Returns the status code and text of a response."""
_TIMEOUT_SECONDS = 10


@contextmanager
def serve_pages(address: str, port: int, pages: dict[str, Page]) -> Iterator[int]:
    """Serve the pages by path, in threads, until the context ends. Yields the port. Raises OSError if the address is in use."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_SECONDS  # for idle clients

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
            """Do not log requests: probes are sent every few seconds."""

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
