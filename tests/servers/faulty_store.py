"""A proxy in front of an S3 server that breaks, delays, damages and refuses requests, as told by a schedule."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = (
    "cut-request",
    "cut-response",
    "lost-answer",
    "delay",
    "flip-request",
    "flip-response",
    "truncate",
    "wrong-length",
    "403",
    "404",
    "429",
    "503",
    "expired",
)
_BODIES = {
    "403": b"<Error><Code>AccessDenied</Code></Error>",
    "404": b"<Error><Code>NoSuchKey</Code></Error>",
    "429": b"<Error><Code>TooManyRequests</Code></Error>",
    "503": b"<Error><Code>SlowDown</Code></Error>",
    "expired": b"<Error><Code>ExpiredToken</Code></Error>",
}
_HOP = {"connection", "transfer-encoding", "keep-alive"}
Choose = Callable[[str, str], str]
"""Returns the fault for a method and a path, or an empty string."""


def never(_method: str, _path: str) -> str:
    return ""


@dataclass
class FaultyStore:
    """`choose` decides about every request; `seen` are those that came, with their fault."""

    address: str
    choose: Choose = never
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    is_down: bool = False
    """Then every connection is closed at once."""

    def count(self, fault: str) -> int:
        return sum(each == fault for _, _, each in self.seen)


def schedule(seed: int, rate: float, faults: tuple[str, ...] = FAULTS) -> Choose:
    """The same faults for the same seed and the same order of requests."""
    random_ = random.Random(seed)

    def choose(_method: str, _path: str) -> str:
        return random_.choice(faults) if random_.random() < rate else ""

    return choose


def once(fault: str, method: str, part: str, times: int = 1) -> Choose:
    """The fault for the first requests of this method whose path has this part."""
    left = [times]

    def choose(a_method: str, path: str) -> str:
        if a_method == method and part in path and left[0]:
            left[0] -= 1
            return fault
        return ""

    return choose


@contextlib.contextmanager
def faulty_store(endpoint: str) -> Iterator[FaultyStore]:
    """Run the proxy in front of the server at `endpoint` until the block ends."""
    host, port = endpoint.removeprefix("http://").split(":")

    class Handler(_Proxy):
        upstream = (host, int(port))

    with _Server(("127.0.0.1", 0), Handler) as server:
        store = FaultyStore(f"http://127.0.0.1:{server.server_port}")
        Handler.store = store
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield store
        server.shutdown()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Broken connections are what this is for."""


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: tuple[str, int]
    store: FaultyStore

    def _forward(self) -> None:
        if self.store.is_down:
            return self._break()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.store.choose(self.command, self.path)
        self.store.seen.append((self.command, self.path, fault))
        if fault == "cut-request":
            return self._break()
        if fault == "delay":
            time.sleep(0.3)
        if fault in _BODIES:
            return self._answer(int(fault) if fault.isdigit() else 403, {}, _BODIES[fault])
        if fault == "flip-request" and body and self.command == "PUT":
            body = _flipped(body)
        status, headers, content = self._ask(body)
        if fault == "lost-answer":
            return self._break()
        self._answer(status, headers, content, fault)

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection(*self.upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP:
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            found = upstream.getresponse()
            headers = {name: value for name, value in found.getheaders() if name.lower() not in _HOP}
            return found.status, headers, found.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, fault: str = "") -> None:
        length = headers.pop("Content-Length", None) or str(len(content))
        if fault == "flip-response" and content and status in (200, 206) and self.command == "GET":
            content = _flipped(content)
        if fault == "wrong-length" and self.command == "GET":
            length = str(len(content) + 10)
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command == "HEAD":
            return
        half = fault in ("cut-response", "truncate")
        self.wfile.write(content[: len(content) // 2] if half else content)
        if half or fault == "wrong-length":
            self._break(reset=fault == "cut-response")

    def _break(self, *, reset: bool = True) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.shutdown(socket.SHUT_RDWR)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._forward
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        pass


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
