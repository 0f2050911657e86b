"""One GET of a probe or hook, as a kubelet's HTTP client sends it: one time limit for all of it, redirects on the same host only.

Source: pkg/probe/http of Kubernetes. Certificates are not verified. The words of failures are those of Go.
"""

from __future__ import annotations

import functools
import http.client
import io
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

Headers = Sequence[tuple[str, str]]
_BODY_BYTES = 10 * 1024
_REDIRECTS = 10
_FOLLOWED = (301, 302, 303, 307, 308)
_IN_PATH = "/%~:@!$&'()*+,;="
_IN_QUERY = _IN_PATH + '?[]{}|^`\\"<>'
_TIMED_OUT = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_TIMED_OUT_LATER = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


class GetFailed(Exception):
    """No answer came."""


class NotEncrypted(GetFailed):
    """The server does not speak TLS."""


class BodyFailed(Exception):
    """An answer came, but not all of its body."""


@dataclass(frozen=True)
class HttpAnswer:
    """The status, and the first 10 KiB of the body. Of a redirect if it leads to another host."""

    status: int
    body: bytes


def http_get(url: str, headers: Headers, timeout: float) -> HttpAnswer:
    """Send a GET and follow redirects, all within `timeout` seconds. A header `Host` replaces that of the URL.

    Raises GetFailed, BodyFailed.
    """
    deadline, asked, location = time.monotonic() + timeout, url, ""
    for _ in range(_REDIRECTS):
        connected, response = _exchange(asked, headers, deadline)
        with connected:
            location = response.getheader("Location") or ""
            following = _resolve(asked, location) if response.status in _FOLLOWED and location else None
            if following is None or following.hostname != urlsplit(url).hostname:
                return HttpAnswer(response.status, _body(response))
        if urlsplit(location).netloc:
            headers = [(name, value) for name, value in headers if name.lower() != "host"]
        asked = following.geturl()
    raise GetFailed(f'Get "{location}": stopped after {_REDIRECTS} redirects')


def dial_problem(error: OSError, address: str) -> str:
    """Return why a connection to `address` (host and port) could not be made."""
    if isinstance(error, TimeoutError):
        return f"dial tcp {address}: i/o timeout"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {address.rpartition(':')[0]}: no such host"
    return f"dial tcp {address}: connect: {_reason(error)}"


def join_host_port(host: str, port: int) -> str:
    """Return an address as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _exchange(url: str, headers: Headers, deadline: float) -> tuple[socket.socket, http.client.HTTPResponse]:
    """Send one request, and return the connection and the answer, whose headers have been read."""
    parts = urlsplit(url)
    address = join_host_port(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    try:
        head = _head(parts, headers)
        connected = _connect(parts.hostname or "", int(address.rpartition(":")[2]), deadline)
        try:
            connected = _encrypt(connected, parts.hostname or "", deadline) if parts.scheme == "https" else connected
            connected.settimeout(_remaining(deadline))
            connected.sendall(head)
            response = http.client.HTTPResponse(_TimedSocket(connected, deadline), method="GET")  # type: ignore[arg-type]
            response.begin()
        except BaseException:
            connected.close()
            raise
    except GetFailed as error:
        raise type(error)(f'Get "{url}": {error}') from error
    except (OSError, http.client.HTTPException) as error:
        raise GetFailed(f'Get "{url}": {_http_problem(error, address)}') from error
    return connected, response


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), _remaining(deadline))
    except TimeoutError:
        raise  # reported as a timeout of the request
    except OSError as error:
        raise GetFailed(dial_problem(error, join_host_port(host, port))) from error


def _head(parts: SplitResult, headers: Headers) -> bytes:
    """Return the lines of a request. Raises GetFailed for a scheme or header that Go's client refuses."""
    if parts.scheme not in ("http", "https"):
        raise GetFailed(f'unsupported protocol scheme "{parts.scheme}"')
    first = {name.lower(): value for name, value in reversed(headers)}
    target = quote(parts.path or "/", safe=_IN_PATH) + (f"?{quote(parts.query, safe=_IN_QUERY)}" if parts.query else "")
    lines = [f"GET {target} HTTP/1.1", f"Host: {first.get('host') or parts.netloc.rpartition('@')[2]}"]
    if "connection" not in first:
        lines.append("Connection: close")
    for name, value in headers:
        if any((letter < " " and letter != "\t") or letter == "\x7f" for letter in value):
            raise GetFailed(f'net/http: invalid header field value for "{name}"')
        if name.lower() != "host" and (name.lower() not in ("accept", "user-agent") or first[name.lower()]):
            lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode()


def _encrypt(connected: socket.socket, host: str, deadline: float) -> ssl.SSLSocket:
    connected.settimeout(_remaining(deadline))
    try:
        return _tls().wrap_socket(connected, server_hostname=host)
    except ssl.SSLError as error:
        if error.reason == "WRONG_VERSION_NUMBER":
            raise NotEncrypted("http: server gave HTTP response to HTTPS client") from error
        raise GetFailed(f"remote error: tls: {(error.reason or 'handshake failure').lower().replace('_', ' ')}") from error


@functools.cache
def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # a kubelet does not verify the certificates of pods either
    return context


def _resolve(asked: str, location: str) -> SplitResult:
    try:
        following = urlsplit(urljoin(asked, location))
        _ = following.port  # raises for one that is no number
    except ValueError as error:
        raise GetFailed(f'Get "{asked}": failed to parse Location header "{location}": {error}') from error
    return following


def _body(response: http.client.HTTPResponse) -> bytes:
    try:
        body = response.read(_BODY_BYTES)
    except TimeoutError as error:
        raise BodyFailed(_TIMED_OUT_LATER) from error
    except (OSError, http.client.HTTPException) as error:
        raise BodyFailed("unexpected EOF") from error
    if response.length and len(body) < _BODY_BYTES:
        raise BodyFailed("unexpected EOF")
    return body


def _http_problem(error: Exception, address: str) -> str:
    if isinstance(error, TimeoutError):
        return _TIMED_OUT
    if isinstance(error, (http.client.RemoteDisconnected, ssl.SSLEOFError)):
        return "EOF"
    return f"read tcp {address}: read: {_reason(error)}" if isinstance(error, OSError) else f"net/http: {error}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _remaining(deadline: float) -> float:
    """Return the seconds until the deadline. Raises TimeoutError after it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _TimedSocket:
    """What an answer is read from: all reads together end at the deadline, however slowly the server goes on sending."""

    def __init__(self, connected: socket.socket, deadline: float):
        self._socket, self._deadline = connected, deadline

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._socket, self._deadline))


class _TimedReader(io.RawIOBase):
    def __init__(self, connected: socket.socket, deadline: float):
        self._socket, self._deadline = connected, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(_remaining(self._deadline))
        return self._socket.recv_into(buffer)
