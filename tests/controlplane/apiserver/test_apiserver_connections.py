"""Clients that are slow, silent, broken or many, over real sockets: they are cut, and nobody else waits for them."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from hostile import ADMIN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.waiting import eventually

from trainwright.api.kinds import CONFIG_MAP
from trainwright.controlplane.apiserver.auth.credentials import load_credentials
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.connections import ConnectionTimeouts
from trainwright.controlplane.apiserver.http.serve import Serving, serve
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

pytestmark = pytest.mark.medium
MAPS = "/api/v1/namespaces/default/configmaps"
SOON = 10.0
"""Seconds; longer than the timeouts of the test servers, shorter than the default ones."""


@dataclass
class Port:
    """Plain HTTP, byte by byte."""

    port: int
    server: ResourceServer
    serving: Serving

    def open(self, *, receive_buffer: int = 0) -> socket.socket:
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(SOON)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def answer(self, request: bytes) -> bytes:
        """Everything that comes until the server closes."""
        with self.open() as connection:
            connection.sendall(request)
            return until_closed(connection)


def until_closed(connection: socket.socket) -> bytes:
    chunks = []
    try:
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    except ConnectionResetError:
        pass
    return b"".join(chunks)


def drip(connection: socket.socket, data: bytes, times: int, seconds: float) -> None:
    for _ in range(times):
        connection.sendall(data)
        threading.Event().wait(seconds)


def head(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {ADMIN}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@pytest.fixture
def port(server: ResourceServer) -> Iterator[Port]:
    app = Api(server, Tokens(ADMIN, b"k" * 32), body_seconds=0.5)
    with serve(app, timeouts=ConnectionTimeouts(head=0.5, reading=0.5, connections=40)) as serving:
        yield Port(serving.port, server, serving)


def quick(port: Port) -> bool:
    """Whether somebody else is answered at once."""
    began = time.monotonic()
    said = port.answer(head("GET", "/readyz", "Connection: close"))
    assert said.startswith(b"HTTP/1.1 200"), said
    return time.monotonic() - began < 2


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /readyz HTTP/1.1\r\n", b"GET /readyz HTTP/1.1\r\nHost: a\r\nX: y\r\n"])
def test_a_header_that_does_not_end(port: Port, sent: bytes) -> None:
    with port.open() as connection:
        connection.sendall(sent)
        assert quick(port)
        said = until_closed(connection)
    assert said == b"" if not sent else said.startswith(b"HTTP/1.1 408")


def test_a_second_header_that_does_not_end(port: Port) -> None:
    with port.open() as connection:
        connection.sendall(head("GET", "/readyz") + b"GET /re")
        assert until_closed(connection).startswith(b"HTTP/1.1 200")


def test_a_header_that_drips(port: Port) -> None:
    """Byte after byte does not buy time."""
    with port.open() as connection:
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(connection, b"X", 1000, 0.05)
        assert time.monotonic() - began < SOON


def test_a_body_that_does_not_come(port: Port) -> None:
    said = port.answer(head("POST", MAPS, "Content-Type: application/json", "Content-Length: 100") + b"{")
    status = orjson.loads(said.partition(b"\r\n\r\n")[2])
    assert said.startswith(b"HTTP/1.1 504")
    assert (status["kind"], status["reason"]) == ("Status", "Timeout")


def test_a_body_without_end(port: Port) -> None:
    """It is read a while, so that the client hears the answer, and then no further."""
    with port.open() as connection:
        connection.sendall(head("POST", MAPS, "Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(connection, chunk, 1000, 0)


@pytest.mark.parametrize("size", [(3 << 20) + 1, 8 << 20])
def test_a_body_that_is_too_large(port: Port, size: int) -> None:
    said = port.answer(head("POST", MAPS, f"Content-Length: {size}", "Connection: close") + b"x" * size)
    status = orjson.loads(said.partition(b"\r\n\r\n")[2])
    assert (status["code"], status["reason"]) == (413, "RequestEntityTooLarge")
    assert status["message"] == "Request entity too large: limit is 3145728"


def test_a_watcher_who_stops_reading_is_cut(port: Port) -> None:
    with port.open(receive_buffer=4096) as connection:
        connection.sendall(head("GET", f"{MAPS}?watch=1"))
        assert connection.recv(20)
        for number in range(60):
            obj = {"metadata": {"name": f"m{number}"}, "data": {"a": "x" * 200_000}}
            port.server.create(CONFIG_MAP, "default", obj)
        assert port.server.store.watchers()
        assert quick(port)
        eventually(lambda: not port.server.store.watchers(), SOON, "the watch of the silent reader ends")


def test_watchers_who_read_nothing_are_cut_soon_if_they_are_many(server: ResourceServer) -> None:
    """A few have a minute; further ones have less. What each holds is little of what they would have to read."""
    timeouts = ConnectionTimeouts(reading=60, stalled=2, reading_of_many=0.1)
    with serve(Api(server, Tokens(ADMIN, b"k" * 32)), timeouts=timeouts) as serving:
        port = Port(serving.port, server, serving)
        silent = [port.open(receive_buffer=4096) for _ in range(6)]
        for connection in silent:
            connection.sendall(head("GET", f"{MAPS}?watch=1"))
            assert connection.recv(20)
        for number in range(10):
            server.create(CONFIG_MAP, "default", {"metadata": {"name": f"m{number}"}, "data": {"a": "x" * 1_000_000}})
        eventually(lambda: sum(server.store.watchers().values()) == 2, SOON, "all but two watches to be cut")
        held = [each.transport.get_write_buffer_size() for each in serving._server.server_state.connections]
        assert max(held) < 100_000, held
        assert quick(port)
        for connection in silent:
            connection.close()


def test_over_tls_too(server: ResourceServer, tmp_path: Path) -> None:
    """Between the socket and the server is another buffer: it has to notice as well."""
    credentials = load_credentials(tmp_path)
    app = Api(server, Tokens(ADMIN, b"k" * 32))
    context = ssl.create_default_context(cadata=credentials.authority.read_text())
    timeouts = ConnectionTimeouts(head=0.5, reading=0.5)
    with serve(app, cert=credentials.certificate, key=credentials.key, timeouts=timeouts) as serving:
        silent = context.wrap_socket(Port(serving.port, server, serving).open(receive_buffer=4096), server_hostname="localhost")
        with silent:
            silent.sendall(head("GET", f"{MAPS}?watch=1"))
            assert silent.recv(20)
            for number in range(60):
                server.create(CONFIG_MAP, "default", {"metadata": {"name": f"m{number}"}, "data": {"a": "x" * 200_000}})
            assert server.store.watchers()
            eventually(lambda: not server.store.watchers(), SOON, "the watch of the silent reader ends")


def test_an_answer_that_nobody_reads_is_cut(port: Port) -> None:
    for number in range(30):
        port.server.create(CONFIG_MAP, "default", {"metadata": {"name": f"m{number}"}, "data": {"a": "x" * 500_000}})
    silent = [port.open(receive_buffer=4096) for _ in range(5)]
    for connection in silent:
        connection.sendall(head("GET", MAPS, "Connection: close"))
    assert quick(port)
    connections = port.serving._server.server_state.connections
    eventually(lambda: not connections, SOON, "the silent readers are cut")
    for connection in silent:
        assert len(until_closed(connection)) < 30 * 500_000
        connection.close()


def test_many_connections_make_room_for_new_ones(port: Port) -> None:
    idle = [port.open() for _ in range(120)]
    assert quick(port)
    for connection in idle:
        connection.close()


def test_blank_lines_do_not_keep_a_connection(port: Port) -> None:
    with port.open() as connection:
        connection.sendall(head("GET", "/readyz"))
        assert connection.recv(20).startswith(b"HTTP/1.1 200")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(connection, b"\r\n", 100, 0.05)


@pytest.fixture
def secure(server: ResourceServer, tmp_path: Path) -> Iterator[tuple[Port, ssl.SSLContext]]:
    """A server behind TLS with room for 64 handshakes and 40 connections."""
    credentials = load_credentials(tmp_path)
    context = ssl.create_default_context(cadata=credentials.authority.read_text())
    timeouts = ConnectionTimeouts(handshake=1.0, head=5.0, handshakes=64, connections=40)
    app = Api(server, Tokens(ADMIN, b"k" * 32))
    with serve(app, cert=credentials.certificate, key=credentials.key, timeouts=timeouts) as serving:
        yield Port(serving.port, server, serving), context


def entered(port: Port, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection that has finished its TLS handshake."""
    return context.wrap_socket(port.open(), server_hostname="localhost")


def is_ready(connection: ssl.SSLSocket) -> bool:
    connection.sendall(head("GET", "/readyz"))
    return connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.alone
def test_connections_that_begin_no_tls(secure: tuple[Port, ssl.SSLContext]) -> None:
    """The oldest make room for new ones at once, the others are closed at their timeout."""
    port, context = secure
    silent = [port.open() for _ in range(400)]
    began = time.monotonic()
    with entered(port, context) as connection:
        assert is_ready(connection)
        assert time.monotonic() - began < 2
        assert [until_closed(other) for other in silent[: 400 - 64]] == [b""] * (400 - 64)
        assert time.monotonic() - began < 1  # sooner than the timeout
        assert [until_closed(other) for other in silent] == [b""] * 400
        assert 0.5 < time.monotonic() - began < SOON
        assert is_ready(connection)
    for other in silent:
        other.close()


@pytest.mark.parametrize("sent", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00", b"GET /readyz HTTP/1.1\r\n\r\n", b"\0" * 500])
def test_handshakes_that_do_not_end(secure: tuple[Port, ssl.SSLContext], sent: bytes) -> None:
    port, context = secure
    with port.open() as broken, entered(port, context) as connection:
        broken.sendall(sent)
        assert is_ready(connection)
        until_closed(broken)


def test_connections_without_a_request_make_room_first(secure: tuple[Port, ssl.SSLContext]) -> None:
    port, context = secure
    with entered(port, context) as known:
        assert is_ready(known)
        silent = [entered(port, context) for _ in range(60)]
        with entered(port, context) as connection:
            assert is_ready(connection)
        assert is_ready(known)
        for other in silent:
            other.close()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (head("GET", "/api/v1/pods", "X: " + "y" * 2_000_000), 431),
        (head("GET", "/api/v1/pods?a=" + "y" * 2_000_000), 431),
        (head("GET", "/api/v1/pods", *["X: y"] * 400_000), 431),
        (head("GET", "/api/v1/pods", *["X: y"] * 3000, "Connection: close"), 200),
        (b"\x16\x03\x01" + b"\0" * 50 + b"\r\n\r\n", 400),
        (b"GET http://[::1 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/99\r\n\r\n", 400),
        (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (head("POST", MAPS, "Content-Length: -1"), 400),
        (head("POST", MAPS, "Content-Length: 5", "Content-Length: 6"), 400),
        (head("POST", MAPS, "Transfer-Encoding: chunked") + b"zz\r\n", 400),
        (head("GET", "/api/v1/namespaces/default/pods/%00%ff%2F", "Connection: close"), 404),
        (head("GET", "/api/v1/%zz", "Connection: close"), 404),
    ],
)
def test_malformed_http_gets_an_error_status(port: Port, request_: bytes, code: int) -> None:
    said = port.answer(request_)
    assert said.startswith(f"HTTP/1.1 {code}".encode()), said[:200]
    assert quick(port)


_PIECES = st.sampled_from(
    [b"", b"\r\n", b"\0", b"\n", b" ", b":", b"%00", b"\xff" * 9, b"HTTP/1.1", b"0\r\n\r\n", b"GET ", b"x" * 3000, b"//", b"?a=b",
     b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
     b"Upgrade: websocket\r\nConnection: upgrade\r\n"]
)  # fmt: skip
_WHOLE = st.sampled_from(
    [
        head("GET", "/api/v1/pods"),
        head("GET", f"{MAPS}?watch=1&timeoutSeconds=1"),
        head("POST", MAPS, "Content-Type: application/json", "Content-Length: 33") + b'{"metadata":{"name":"a"},"data":{}}',
        head("PATCH", f"{MAPS}/a", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n",
        head("GET", "/readyz") + head("GET", "/version"),
    ]
)


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """A request, or two, with pieces of it replaced."""
    data = draw(_WHOLE)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        data = data[:start] + draw(_PIECES) + data[draw(st.integers(start, min(len(data), start + 20))) :]
    return data


@pytest.fixture(scope="module")
def lasting_port() -> Iterator[Port]:
    store = Store(":memory:")
    server = ResourceServer(store)
    app = Api(server, Tokens(ADMIN, b"k" * 32), body_seconds=0.2)
    with serve(app, timeouts=ConnectionTimeouts(head=0.2, reading=0.5, connections=40)) as serving:
        yield Port(serving.port, server, serving)
    store.close()


@settings(suppress_health_check=list(HealthCheck), max_examples=max(20, settings().max_examples // 10))
@given(requests=st.lists(torn(), min_size=3, max_size=3))
def test_property_torn_requests(lasting_port: Port, requests: list[bytes]) -> None:
    """Three at a time: each is answered or hung up on, and the next client is served."""
    open_ones = [lasting_port.open() for _ in requests]
    for connection, request in zip(open_ones, requests, strict=True):
        connection.sendall(request)
    for connection in open_ones:
        connection.shutdown(socket.SHUT_WR)
        said = until_closed(connection)
        assert not said or said.startswith(b"HTTP/1.1 "), said[:100]
        assert b" 500 " not in said.partition(b"\r\n")[0], said[:300]
        connection.close()
    assert quick(lasting_port)
    assert not lasting_port.server.store.watchers()


UPGRADE = {
    b"Host": b"a",
    b"Authorization": b"Bearer " + ADMIN.encode(),
    b"Connection": b"Upgrade",
    b"Upgrade": b"websocket",
    b"Sec-WebSocket-Version": b"13",
    b"Sec-WebSocket-Key": b"dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Protocol": b"v4.channel.k8s.io",
    b"Sec-WebSocket-Extensions": b"permessage-deflate",
    b"X-Stream-Protocol-Version": b"v4.channel.k8s.io",
    b"X-Other": b"a",
}
SESSIONS = [b"exec?command=x&stdout=1", b"attach?stdin=1", b"portforward?ports=1"]


def handshake(session: bytes, headers: dict[bytes, bytes]) -> bytes:
    lines = [b"GET /api/v1/namespaces/default/pods/a/" + session + b" HTTP/1.1", *map(b": ".join, headers.items())]
    return b"\r\n".join(lines) + b"\r\n\r\n"


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"Sec-WebSocket-Protocol", b"\xe9"),
        (b"Sec-WebSocket-Protocol", b"v4.channel.k8s.io, \xff"),
        (b"Sec-WebSocket-Extensions", b"\xe9"),
        (b"Connection", b"Upgrade, \xe9"),
        (b"Host", b"\xe9"),
        (b"Host", b"xn--\xff"),
    ],
)
def test_a_websocket_handshake_that_is_not_ascii(lasting_port: Port, session: bytes, header: bytes, value: bytes) -> None:
    said = lasting_port.answer(handshake(session, {**UPGRADE, header: value}))
    status = orjson.loads(said.partition(b"\r\n\r\n")[2])
    assert said.startswith(b"HTTP/1.1 400 ")
    assert (status["kind"], status["code"]) == ("Status", 400)


_HEADERS = st.dictionaries(
    st.sampled_from(sorted(UPGRADE)),
    st.binary(max_size=20) | st.sampled_from([b"SPDY/3.1", b"websocket", b"Upgrade", b"xn--a", b"a." * 300, b",", b"13"]),
    min_size=1,
    max_size=3,
)


@settings(suppress_health_check=list(HealthCheck))
@given(session=st.sampled_from(SESSIONS), changed=_HEADERS, removed=st.sets(st.sampled_from(sorted(UPGRADE)), max_size=1))
def test_property_any_handshake_is_answered(
    lasting_port: Port, caplog: pytest.LogCaptureFixture, session: bytes, changed: dict[bytes, bytes], removed: set[bytes]
) -> None:
    """Promptly, and without a traceback in the log."""
    headers = {name: value for name, value in {**UPGRADE, **changed}.items() if name not in removed}
    began = time.monotonic()
    with lasting_port.open() as connection:
        connection.sendall(handshake(session, headers))
        said = connection.recv(65536)  # the connection stays open if it was no handshake
    assert said.startswith(b"HTTP/1.1 "), said[:100]
    assert b" 500 " not in said.partition(b"\r\n")[0]
    assert time.monotonic() - began < 5
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
