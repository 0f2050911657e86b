"""An HTTP server that answers what the test tells it to, and a cluster that speaks to it."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from trainwright.cluster import connect, refusals
from trainwright.cluster.kubernetes_cluster import KubernetesCluster

TOKEN = "s3cr3t-of-the-test"


@dataclass
class Asked:
    """A request as it arrived; names of headers in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Stub:
    """The server. `answers` are functions that write to the handler, used up in order."""

    url: str = ""
    answers: queue.Queue[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=queue.Queue)
    asked: list[Asked] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)

    def answer(self, obj: Any, code: int = 200, **headers: str) -> None:
        """Answer one request with JSON, or with bytes as they are."""
        body = obj if isinstance(obj, bytes) else json.dumps(obj).encode()

        def write(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(code)
            for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

        self.answers.put(write)

    def fail(self, code: int, reason: str = "", message: str = "no", **more: Any) -> None:
        headers = more.pop("headers", {})
        self.answer({"kind": "Status", "code": code, "reason": reason, "message": message, **more}, code, **headers)

    def hang_up(self) -> None:
        """Close the connection of one request without an answer, as a server closes one that was kept alive."""

        def close(handler: BaseHTTPRequestHandler) -> None:
            handler.close_connection = True

        self.answers.put(close)

    def stream(self, *pieces: bytes, end: str = "whole") -> None:
        """Answer one request with chunks; `end` is `whole`, `cut` (no last chunk) or `open` (until the client hangs up)."""

        def write(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for piece in pieces:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
            if end == "whole":
                handler.wfile.write(b"0\r\n\r\n")
            elif end == "cut":
                handler.close_connection = True
            else:
                if handler.connection.recv(1) == b"":
                    self.hung_up.set()
                handler.close_connection = True

        self.answers.put(write)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setattr(refusals, "_servers", {})  # an earlier server may have had the same port
    script = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            script.asked.append(Asked(self.command, parts.path, query, {k.lower(): v for k, v in self.headers.items()}, body))
            script.answers.get_nowait()(self)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], ConnectionError):  # clients that hang up are what is tested
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield script
    server.shutdown()
    server.server_close()


def kubeconfig(path: Path, *contexts: tuple[str, str, str], token: str = TOKEN) -> Path:
    """A kubeconfig with contexts of `(name, server, namespace)`; the first is current."""
    named = [
        {"name": name, "context": {"cluster": name, "user": "me", **({"namespace": space} if space else {})}}
        for name, _, space in contexts
    ]
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": contexts[0][0],
        "clusters": [{"name": name, "cluster": {"server": server}} for name, server, _ in contexts],
        "contexts": named,
        "users": [{"name": "me", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(name="kubeconfig")
def kubeconfig_fixture() -> Callable[..., Path]:
    return kubeconfig


@pytest.fixture
def cluster(stub: Stub, tmp_path: Path) -> KubernetesCluster:
    """The cluster of the stub, with the namespace `team`."""
    return connect(kubeconfig(tmp_path / "config", ("here", stub.url, "team")))
