"""An http(s) client on `http.client`: keeps connections, follows redirects, and sends a token only to the origin that it is for.

Thread-safe. A response's body is read into the caller's buffer, so that memory stays bounded.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import SplitResult

from trainwright.storage.errors import StorageError, Unreachable
from trainwright.storage.http.abort_scope import AbortScope
from trainwright.storage.http.errors import ConnectionCut, HttpError, Untrusted
from trainwright.storage.http.proxy import proxy_for
from trainwright.storage.web_address import checked_address, origin, redirect_target, shown_address
from trainwright.text.foreign_texts import without_credentials

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_MAX_DRAINED = 64 * 1024
"""Bytes of an unwanted body that are read to keep a connection; with more, it is closed."""
_MAX_IDLE_SECONDS = 30.0
_MAX_DETAIL = 200


Origin = tuple[str, str, int]
Scopes = tuple[AbortScope, ...]


@dataclass(frozen=True)
class Timeouts:
    """Seconds to connect, and between two pieces of an answer."""

    connect: float = 10.0
    read: float = 60.0


class HttpClient:
    """`token` is sent as a bearer token to the origin of `token_for`, and to no other, whatever redirects say."""

    def __init__(
        self,
        *,
        token: str = "",
        token_for: str = "",
        timeouts: Timeouts = Timeouts(),
        environ: Mapping[str, str] = os.environ,
    ):
        self._token, self._token_origin = token, origin(token_for) if token_for else None
        self._timeouts, self._environ = timeouts, environ
        self._lock = threading.Lock()
        self._idle: dict[Origin, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._scope = AbortScope()
        self._context: ssl.SSLContext | None = None

    def open(self, url: str, headers: Mapping[str, str] | None = None, *, scope: AbortScope | None = None) -> HttpResponse:
        """Send a GET request and return the response of the last redirect, to be closed by the caller.

        Raises HttpError for a status that is not 2xx, Unreachable, Untrusted, BadUri, StorageError (redirects), Cancelled.
        """
        asked = url
        scopes = (self._scope, scope) if scope is not None else (self._scope,)
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._send(checked_address(url, self._environ), dict(headers or {}), scopes)
            if response.status in _REDIRECTS:
                location = response.headers.get("Location", "")
                response.close()
                url = redirect_target(url, location)
            elif 200 <= response.status < 300:
                response.url = url
                return response
            else:
                raise _http_error(response, asked, was_redirected=url != asked)
        raise StorageError(f"{shown_address(asked)}: more than {_MAX_REDIRECTS} redirects")

    def read(self, url: str, limit: int, headers: Mapping[str, str] | None = None) -> tuple[bytes, http.client.HTTPMessage]:
        """Return a body of at most `limit` bytes, and the headers. Raises the errors of `open`, StorageError for a larger one."""
        with self.open(url, headers) as response:
            content = bytearray()
            buffer = memoryview(bytearray(_MAX_DRAINED))
            while count := response.readinto(buffer):
                content += buffer[:count]
                if len(content) > limit:
                    raise StorageError(f"{shown_address(url)}: the answer is larger than {limit} bytes")
            return bytes(content), response.headers

    def abort(self) -> None:
        """End all requests, also in other threads. Further ones are refused."""
        self._scope.abort()

    def close(self) -> None:
        """Close all connections."""
        self.abort()
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for _, connection in connections:
                connection.close()

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, address: SplitResult, headers: dict[str, str], scopes: Scopes) -> HttpResponse:
        place = origin(address.geturl())
        headers = {"Accept-Encoding": "identity", "User-Agent": "trainwright", **headers}
        if self._token and place == self._token_origin:
            headers["Authorization"] = f"Bearer {self._token}"
        while True:
            connection = self._take_idle(place)
            is_reused = connection is not None
            try:
                if connection is None:
                    connection = self._connect(place)
                return self._exchange(connection, place, address, headers, scopes)
            except (OSError, http.client.HTTPException) as error:
                if connection is not None:
                    connection.close()
                if is_reused and not isinstance(error, TimeoutError):
                    continue  # the server closed it while it was idle
                raise _unreachable(address.geturl(), error) from None

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        place: Origin,
        address: SplitResult,
        headers: dict[str, str],
        scopes: Scopes,
    ) -> HttpResponse:
        target = f"{address.path}?{address.query}" if address.query else address.path
        proxy = proxy_for(*place, self._environ)
        if proxy is not None and place[0] == "http":
            target = address.geturl()
            if proxy.authorization:
                headers = {**headers, "Proxy-Authorization": proxy.authorization}
        sock = connection.sock  # `getresponse` forgets it if the server closes after this response

        def leave_scopes() -> None:
            for scope in scopes:
                scope.discard(sock)

        def on_close(done: HttpResponse) -> None:
            leave_scopes()
            self._give_back(place, connection, done)

        try:
            for scope in scopes:
                scope.add(sock)
            connection.request("GET", target, headers={**headers, "Host": address.netloc})
            return HttpResponse(connection.getresponse(), address.geturl(), on_close)
        except BaseException:
            leave_scopes()
            connection.close()
            raise

    def _connect(self, place: Origin) -> http.client.HTTPConnection:
        scheme, host, port = place
        proxy = proxy_for(scheme, host, port, self._environ)
        at, at_port = (proxy.host, proxy.port) if proxy is not None else (host, port)
        connection: http.client.HTTPConnection
        if scheme == "https":
            context = self._tls()
            connection = http.client.HTTPSConnection(at, at_port, timeout=self._timeouts.connect, context=context)
            if proxy is not None:
                authorization = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
                connection.set_tunnel(host, port, headers=authorization)
        else:
            connection = http.client.HTTPConnection(at, at_port, timeout=self._timeouts.connect)
        try:
            connection.connect()
            connection.sock.settimeout(self._timeouts.read)
        except BaseException:
            connection.close()
            raise
        return connection

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                self._context = ssl.create_default_context()
                if not self._context.cert_store_stats()["x509_ca"] and not os.path.isdir(
                    ssl.get_default_verify_paths().capath or ""
                ):
                    with contextlib.suppress(ImportError):  # an image without CA certificates
                        import certifi

                        self._context.load_verify_locations(certifi.where())
            return self._context

    def _take_idle(self, place: Origin) -> http.client.HTTPConnection | None:
        with self._lock:
            connections = self._idle.get(place, [])
            while connections:
                since, connection = connections.pop()
                if time.monotonic() - since < _MAX_IDLE_SECONDS:
                    return connection
                connection.close()
        return None

    def _give_back(self, place: Origin, connection: http.client.HTTPConnection, done: HttpResponse) -> None:
        with self._lock:
            if done.is_reusable:
                self._idle.setdefault(place, []).append((time.monotonic(), connection))
                return
        connection.close()


class HttpResponse:
    """`length` is the announced number of bytes of the body, or None. Closed as a context manager."""

    def __init__(self, raw: http.client.HTTPResponse, url: str, on_close: Callable[[HttpResponse], None]):
        self.url, self.status, self.headers = url, raw.status, raw.headers
        self.length = raw.length
        self.is_chunked = bool(raw.chunked)
        self._raw, self._on_close = raw, on_close
        self._received, self._is_cut, self._is_closed = 0, False, False

    @property
    def is_reusable(self) -> bool:
        return self._raw.isclosed() and not self._raw.will_close and not self._is_cut

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as the body goes. Returns the number of bytes, 0 at its end. Raises ConnectionCut."""
        try:
            count = self._raw.readinto(buffer)
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:  # the latter two: aborted
            self._is_cut = True
            raise ConnectionCut(f"{shown_address(self.url)}: the connection was cut: {_reason(error)}") from None
        self._received += count
        if not count and len(buffer) and self.length is not None and self._received < self.length:
            self._is_cut = True
            raise ConnectionCut(f"{shown_address(self.url)}: the server sent {self._received} of {self.length} bytes")
        return count

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        rest = None if self.length is None else self.length - self._received
        if rest is not None and 0 < rest <= _MAX_DRAINED and not self._is_cut:
            with contextlib.suppress(ConnectionCut):
                self.readinto(memoryview(bytearray(rest)))
        if rest == 0:
            self._raw.close()  # an empty body counts as unread otherwise
        self._on_close(self)

    def __enter__(self) -> HttpResponse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def retry_after_seconds(value: str, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or as a date; None for anything else."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _http_error(response: HttpResponse, asked: str, *, was_redirected: bool) -> HttpError:
    headers = response.headers
    detail = without_credentials(headers.get("X-Error-Message", ""))[:_MAX_DETAIL] if headers.get("X-Error-Message") else ""
    with response:
        return HttpError(
            shown_address(asked),
            response.status,
            code=headers.get("X-Error-Code", ""),
            detail=detail,
            retry_after=retry_after_seconds(headers.get("Retry-After", ""), time.time()),
            was_redirected=was_redirected,
            headers=headers,
        )


def _unreachable(url: str, error: Exception) -> StorageError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(
            f"{shown_address(url)}: the server's certificate is not trusted ({without_credentials(error.verify_message)}); "
            "set SSL_CERT_FILE to the CA file"
        )
    return Unreachable(f"{shown_address(url)} cannot be reached: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return without_credentials(error.strerror)
    return without_credentials(error)
