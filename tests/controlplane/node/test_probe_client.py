"""The GET of probes and hooks against real servers: what is sent, which redirects are followed, and when it gives up."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from probe_servers import Answer, replies, serve

from trainwright.controlplane.apiserver.auth.credentials import new_authority, new_server_certificate
from trainwright.controlplane.node.network.probe_client import (
    BodyFailed,
    GetFailed,
    HttpAnswer,
    NotEncrypted,
    dial_problem,
    http_get,
)

pytestmark = pytest.mark.medium
SECONDS = 5.0
SOON = 0.15
AGENT = [("User-Agent", "kube-probe/1.36"), ("Accept", "*/*")]


def test_http_get_sends_the_headers_of_a_kubelet() -> None:
    with serve(replies("200 OK", body="fine")) as server:
        assert http_get(server.url("/healthz?deep=1#part"), AGENT, SECONDS) == HttpAnswer(200, b"fine")
        assert server.headers() == [
            "GET /healthz?deep=1 HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Connection: close",
            "User-Agent: kube-probe/1.36",
            "Accept: */*",
        ]


@pytest.mark.parametrize("value", ["two\r\nlines", "nul\0", "delete\x7f"])
def test_a_header_that_would_change_the_request_is_not_sent(value: str) -> None:
    with serve(replies("200 OK")) as server:
        with pytest.raises(GetFailed, match='net/http: invalid header field value for "X-A"'):
            http_get(server.url(), [("X-A", value)], SECONDS)
        assert server.requests == []


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_on_the_same_host_are_followed(code: int) -> None:
    with serve(replies(f"{code} Moved|Location: /b?c=d", "204 No Content")) as server:
        assert http_get(server.url("/a/x"), AGENT, SECONDS).status == 204
        assert [lines[0] for lines in map(server.headers, (0, 1))] == ["GET /a/x HTTP/1.1", "GET /b?c=d HTTP/1.1"]
        assert server.headers(1)[3:] == server.headers(0)[3:]


def test_the_host_header_is_kept_unless_the_redirect_names_one() -> None:
    with serve(replies("302 Found|Location: /b", "200 OK")) as server:
        http_get(server.url(), [("Host", "example.com")], SECONDS)
        assert server.headers()[1] == "Host: example.com"
    with serve(lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")) as other:
        with serve(replies(f"302 Found|Location: {other.url('/b')}")) as server:
            http_get(server.url(), [("Host", "example.com")], SECONDS)
        assert other.headers()[:2] == ["GET /b HTTP/1.1", f"Host: 127.0.0.1:{other.port}"]


@pytest.mark.parametrize(
    "headers",
    [
        "302 Found|Location: http://0.0.0.0/",
        "302 Found|Location: //example.com/x",
        "302 Found",
        "304 Not Modified|Location: /b",
        "300 Choices|Location: /b",
    ],
    ids=["another host", "without a scheme", "nowhere", "no redirect", "a choice"],
)
def test_other_redirects_are_the_answer(headers: str) -> None:
    with serve(replies(headers)) as server:
        assert http_get(server.url(), [], SECONDS).status == int(headers[:3])
        assert len(server.requests) == 1


def test_ten_requests_are_enough() -> None:
    with serve(replies("302 Found|Location: /again")) as server:
        with pytest.raises(GetFailed, match=r'^Get "/again": stopped after 10 redirects$'):
            http_get(server.url(), [], SECONDS)
        assert len(server.requests) == 10


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://[", "failed to parse Location header"),
        ("http://127.0.0.1:no/", "failed to parse Location header"),
        ("ftp://127.0.0.1/", 'Get "ftp://127.0.0.1/": unsupported protocol scheme "ftp"'),
    ],
)
def test_redirects_to_nowhere(location: str, why: str) -> None:
    with serve(replies(f"302 Found|Location: {location}")) as server, pytest.raises(GetFailed, match=why):
        http_get(server.url(), [], SECONDS)


def waits(sent: bytes = b"") -> Answer:
    """Sends something, and no more until the client has gone."""

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(sent)
        connection.recv(1)

    return answer


def drips(data: bytes) -> Answer:
    """Sends a byte now and then, so that no read ever waits for long."""

    def answer(connection: socket.socket, _: bytes) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    return answer


AWAITED = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
READ = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


def timed(answer: Answer, error: type[Exception]) -> str:
    """The message of a GET that must fail soon."""
    with serve(answer) as server:
        begun = time.monotonic()
        with pytest.raises(error) as caught:
            http_get(server.url(), [], SOON)
        assert SOON * 0.9 < time.monotonic() - begun < SOON + 1
        return str(caught.value).replace(server.url(), "URL")


def test_a_server_that_never_answers() -> None:
    assert timed(waits(), GetFailed) == f'Get "URL": {AWAITED}'


def test_a_server_that_goes_on_sending_headers() -> None:
    assert timed(drips(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100), GetFailed) == f'Get "URL": {AWAITED}'


@pytest.mark.parametrize(
    "answer",
    [
        waits(b"HTTP/1.1 200 OK\r\n\r\nso far"),
        waits(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nso far"),
        waits(b"HTTP/1.1 500 Broken\r\n\r\nso far"),
    ],
    ids=["unknown length", "known length", "of a failure"],
)
def test_a_body_that_does_not_end_in_time(answer: Answer) -> None:
    assert timed(answer, BodyFailed) == READ


@pytest.mark.parametrize(
    ("sent", "error", "why"),
    [
        (b"", GetFailed, "EOF"),
        (b"nonsense\r\n\r\n", GetFailed, "net/http: nonsense"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", BodyFailed, "unexpected EOF"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort", BodyFailed, "unexpected EOF"),
    ],
)
def test_answers_that_are_none(sent: bytes, error: type[Exception], why: str) -> None:
    with serve(lambda connection, _: connection.sendall(sent)) as server, pytest.raises(error, match=why):
        http_get(server.url(), [], SECONDS)


def test_only_the_beginning_of_a_large_body_is_read() -> None:
    with serve(replies("200 OK", body="x" * 1_000_000)) as server:
        assert http_get(server.url(), [], SECONDS).body == b"x" * 10 * 1024


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """A certificate that nobody vouches for."""
    now = datetime.now(UTC)
    pair = new_server_certificate(new_authority(now), now)
    file = tmp_path / "pair.pem"
    file.write_bytes(pair.key + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_certificates_are_not_verified(tls: ssl.SSLContext) -> None:
    with serve(replies("200 OK", body="secret"), tls) as server:
        assert http_get(server.url(scheme="https"), AGENT, SECONDS) == HttpAnswer(200, b"secret")
        assert server.headers()[1] == f"Host: 127.0.0.1:{server.port}"
        url = server.url("/b", "https")
        with serve(replies(f"301 Moved|Location: {url}")) as plain:
            assert http_get(plain.url(), [], SECONDS).body == b"secret"


def test_a_server_that_does_not_speak_tls() -> None:
    with serve(replies("400 Bad Request")) as server, pytest.raises(NotEncrypted) as caught:
        http_get(server.url(scheme="https"), [], SOON)
    assert str(caught.value) == f'Get "{server.url(scheme="https")}": http: server gave HTTP response to HTTPS client'


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "dial tcp h:1: i/o timeout"),
        (socket.gaierror(-2, "Name or service not known"), "dial tcp: lookup h: no such host"),
    ],
)
def test_why_nobody_could_be_reached(error: OSError, text: str) -> None:
    assert dial_problem(error, "h:1") == text
