"""What a pod of the cache says of itself: ready once its rows are in memory, and too large before the kernel kills it.

The readiness probe gets 200 on `/ready`, 503 before. A worker over its memory limit ends with a message that says what the table
needs.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_MOST_THREADS = 64
"""Everybody of the machine can connect: beyond these threads of the process, connections are closed at once."""
_SECONDS = 0.02
_SHARE = 0.92
"""Of the limit: between two looks a worker may need more."""
_STATM = Path("/proc/self/statm")
MEBIBYTE = 1024 * 1024
PROGRAM_MEBIBYTES = 192
"""About what a worker needs without rows."""


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


class MemoryGuard:
    """Looks at the memory of this process in a thread, and calls `fail` once it comes near `limit` bytes.

    `loaded` is the number of rows so far. Does nothing without a limit or /proc.
    """

    def __init__(self, limit: int, workers: int, fail: Callable[[str], None]):
        self._limit, self._workers, self._fail = limit, workers, fail
        self.loaded, self._total, self._least_bytes = 0, 0, 0

    def start(self) -> None:
        if self._limit and _STATM.exists():
            threading.Thread(target=self._watch, name="memory", daemon=True).start()

    def expect(self, rows: int, least_bytes: int) -> None:
        """Announce the rows of this worker, and what is known of their size: fails at once if they cannot fit."""
        self._total, self._least_bytes = rows, least_bytes
        if self._limit and least_bytes + PROGRAM_MEBIBYTES * MEBIBYTE > self._limit:
            self._fail(self.advice(least_bytes, "at least"))

    def advice(self, needed: int, how_exact: str = "about") -> str:
        """Return the message for rows that need about, or at least, this many bytes."""
        if not self._total:
            least = f"a worker needs {PROGRAM_MEBIBYTES} MiB without any rows"
            return f"worker_mem (WORKER_MEM) is {self._limit // MEBIBYTE} MiB, and {least}; raise it"
        each = math.ceil(needed / MEBIBYTE) + PROGRAM_MEBIBYTES
        room = max(self._limit / MEBIBYTE * _SHARE - PROGRAM_MEBIBYTES, 1)
        nodes = math.ceil(needed / MEBIBYTE * self._workers / room)
        return (
            f"the table does not fit into the memory of the cache: {self._total} rows of this worker need {how_exact} "
            f"{math.ceil(each / _SHARE)} MiB, and worker_mem (WORKER_MEM) is {self._limit // MEBIBYTE} MiB; raise worker_mem to "
            f"that, or use about {max(nodes, self._workers + 1)} data nodes (CLUSTER_SIZE={max(nodes, self._workers + 1) + 1}) if "
            "the table has that many files of equal size"
        )

    def _watch(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        stop = threading.Event()
        with _STATM.open("rb", buffering=0) as statm:  # once: peers may use up the open files of this process
            while not stop.wait(_SECONDS):
                statm.seek(0)
                used = int(statm.read(200).split()[1]) * page
                if used > self._limit * _SHARE:
                    rows = max(used - PROGRAM_MEBIBYTES * MEBIBYTE, 0)
                    share = self.loaded / self._total if self._total else 1.0
                    self._fail(self.advice(max(int(rows / share) if share else 0, self._least_bytes, rows)))
                    return
