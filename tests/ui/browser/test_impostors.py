"""While the page's server is down, another program listens on its port: an open page gives it nothing, and goes on afterwards."""

from __future__ import annotations

import http.client
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from support.browser import Browser, browser
from support.page_cluster import PageCluster
from support.page_server import serving
from support.waiting import eventually

from trainwright.ui.call import Page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_STORED = "return sessionStorage.getItem('trainwright.session')"
Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def _says(code: int, body: bytes) -> Answer:
    def answer(request: BaseHTTPRequestHandler, _body: bytes) -> None:
        request.send_response(code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def _serves(page: bytes, worker: bytes = b"") -> Answer:
    """Answers with a page, and with a service worker for all pages of this port."""

    def answer(request: BaseHTTPRequestHandler, _body: bytes) -> None:
        is_worker = request.path == "/worker.js"
        content = worker if is_worker else page
        request.send_response(200)
        request.send_header("Content-Type", "text/javascript" if is_worker else "text/html")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return answer


_SEEN_OR_NOT = (
    "const hidden = arguments[0]; Object.defineProperty(document, 'hidden', {get: () => hidden, configurable: true});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)
_READS_STORAGE = b"<body><script>fetch('/stored?' + sessionStorage.getItem('trainwright.session'))</script>"
_REGISTERS = (
    b"<body><script>navigator.serviceWorker.register('/worker.js').then(() => { document.title = 'registered' })</script>"
)
_WORKER = b"""
const seen = [];
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
self.addEventListener("fetch", (event) => {
  seen.push(event.request.headers.get("authorization"));
  if (event.request.url.endsWith("/seen")) event.respondWith(Response.json(seen));
});
"""


def _is_silent(request: BaseHTTPRequestHandler, _body: bytes) -> None:
    cast(Any, request.server).ended.wait(60)


def _passes_on(port: int) -> Answer:
    """Asks the real server, which listens on another port now, and passes its answer on."""

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(request.command, request.path, body, {"Content-Type": "application/json"})
        answered = connection.getresponse()
        _says(answered.status, answered.read())(request, body)

    return answer


@contextmanager
def impostor(port: int, answer: Answer) -> Iterator[list[str]]:
    """Listen on a port; yields all that was received: request lines, headers, bodies."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            received.append(f"{self.requestline}\n{self.headers}\n{body.decode()}")
            answer(self, body)

        def do_GET(self) -> None:
            self.do_POST()

        def do_DELETE(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        ended = threading.Event()

    socketserver.TCPServer.allow_reuse_address = True
    with Server(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield received
        finally:
            server.ended.set()
            server.shutdown()


@pytest.fixture
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def opened_page(window: Browser, cluster: PageCluster, page: Page) -> tuple[str, int]:
    """Open the page in a browser, and stop its server. Returns the session that the tab has, and the port that is free now."""
    with serving(cluster, page) as server:
        server.enter(window)
        token, port = window.script(_STORED), urlsplit(server.url).port
    assert port
    assert token
    return str(token), port


@pytest.mark.parametrize(
    "answer",
    [_is_silent, _says(200, b'{"proof": "00"}'), _says(404, b"{}"), _says(503, b"{}")],
    ids=["silent", "wrong-proof", "404", "503"],
)
def test_impostor_on_the_port_gets_no_session(window: Browser, cluster: PageCluster, tmp_path: Path, answer: Answer) -> None:
    page = Page(sessions=tmp_path / "sessions.json")
    token, port = opened_page(window, cluster, page)
    with impostor(port, answer) as received:
        eventually(lambda: any("/ui/api/proof" in each for each in received), 20, "the page to ask for a proof")
        eventually(lambda: window.script(_STORED) is None, 20, "the session to leave the storage of the tab")
    assert not any(token in each for each in received)
    assert {each.split(" HTTP/")[0] for each in received} == {"POST /ui/api/proof"}


def test_proof_of_a_server_on_another_port_does_not_count(window: Browser, cluster: PageCluster, tmp_path: Path) -> None:
    page = Page(sessions=tmp_path / "sessions.json")
    token, port = opened_page(window, cluster, page)
    with serving(cluster, page) as elsewhere, impostor(port, _passes_on(urlsplit(elsewhere.url).port or 0)) as received:
        window.wait_for("The session has ended.")
        assert not any(token in each for each in received)


def test_page_goes_on_when_its_server_is_back(window: Browser, cluster: PageCluster, tmp_path: Path) -> None:
    page = Page(sessions=tmp_path / "sessions.json")
    token, port = opened_page(window, cluster, page)
    eventually(lambda: window.script(_STORED) is None, 20, "the session to leave the storage of the tab")
    with serving(cluster, page, port=port):
        eventually(lambda: window.script(_STORED) == token, 30, "the server to prove itself")
        window.wait_for("TrainJobs", "live", "demo")
        window.driver.refresh()
        window.wait_for("TrainJobs", "live", "demo")


def test_tab_that_nobody_sees_keeps_no_session_where_a_reload_finds_it(
    window: Browser, cluster: PageCluster, tmp_path: Path
) -> None:
    page = Page(sessions=tmp_path / "sessions.json")
    with serving(cluster, page) as server:
        server.enter(window)
        token, port = window.script(_STORED), urlsplit(server.url).port
        assert port
        window.script(_SEEN_OR_NOT, True)
        eventually(lambda: window.script(_STORED) is None, 20, "the session to leave the storage of the tab")
        window.script(_SEEN_OR_NOT, False)
        eventually(lambda: window.script(_STORED) == token, 20, "the session to be back")
        window.script(_SEEN_OR_NOT, True)
    with impostor(port, _serves(_READS_STORAGE)) as received:
        window.driver.refresh()
        eventually(lambda: any("/stored?" in each for each in received), 20, "the page of the impostor")
    assert not any(token in each for each in received)


def test_service_worker_that_an_impostor_left_sees_no_session(window: Browser, cluster: PageCluster, tmp_path: Path) -> None:
    page = Page(sessions=tmp_path / "sessions.json")
    with serving(cluster, page) as server:
        server.enter(window)
        port, open_page = urlsplit(server.url).port, window.driver.current_window_handle
        assert port
    with impostor(port, _serves(_REGISTERS, _WORKER)):
        window.driver.switch_to.new_window("tab")
        window.open(f"http://127.0.0.1:{port}/")
        eventually(lambda: window.driver.title == "registered", 20, "the worker")
        lure = window.driver.current_window_handle
        eventually(
            lambda: window.script("return Boolean(navigator.serviceWorker.controller)"), 20, "the worker to have the pages"
        )
        window.driver.switch_to.window(open_page)
    with serving(cluster, page, port=port):
        window.wait_for("The session has ended.")
        window.driver.switch_to.window(lure)
        seen = window.asynchronous("const done = arguments[0]; fetch('/seen').then((answer) => answer.json()).then(done)")
    assert not any(seen)
