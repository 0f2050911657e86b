"""An http(s) client on urllib3: follows redirects within our rules, and sends a token only to the origin that it is for.

It retries briefly until the server has answered once, then as long as bytes arrive now and then. One budget is shared by all
requests of a download, so that many files do not multiply the wait. No error contains a query, which may be a signature, or a
header.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, NewConnectionError, ProxyError, ProxySchemeUnknown

from trainwright.backoff import Backoff, retry
from trainwright.storage.errors import StorageError, Unreachable
from trainwright.storage.uri import checked_address, is_loopback, origin, redirect_target, shown_address
from trainwright.text.foreign_texts import without_credentials

_MAX_REDIRECTS = 5
_PIECE = 1024 * 1024
_KEPT = 16
"""Connections to one server that are kept: more than the threads of a download."""
_LONGEST_PAUSE = 21_600.0
"""Seconds; versions of urllib3 before 2.6 give any number of a server."""

_log = logging.getLogger("urllib3.connectionpool")
if _log.level == logging.NOTSET:
    _log.setLevel(logging.INFO)  # its debug lines have whole addresses, with their signatures

T = TypeVar("T")
log = logging.getLogger(__name__)
_BETWEEN_LINES = 10.0
"""Seconds between two log lines about retries, and until the first one about a server from which nothing arrives."""
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
"""520 to 524: a content delivery network cannot reach its origin."""


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
        check_token(token)
        self._token, self._token_origin = token, origin(token_for) if token_for else None
        self._timeout, self._environ = urllib3.Timeout(connect=timeouts.connect, read=timeouts.read), environ
        self._pools: dict[tuple[str, str], urllib3.PoolManager] = {}

    @contextlib.contextmanager
    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a GET request and yield the response of the last redirect; `pieces` reads its body.

        Raises HttpError for a status that is not 2xx, Unreachable, Untrusted, BadUri, StorageError (redirects).
        """
        response = self._follow(url, headers or {})
        try:
            yield response
        finally:
            response.close()  # a connection whose answer was read to its end is back in the pool, and stays open

    def read(self, url: str, limit: int, headers: Mapping[str, str] | None = None) -> bytes:
        """Return a body of at most `limit` bytes. Raises the errors of `open`, StorageError for a larger one."""
        content = bytearray()
        with self.open(url, headers) as response:
            for piece in pieces(response, url):
                content += piece
                if len(content) > limit:
                    raise StorageError(f"{shown_address(url)}: the answer is larger than {limit} bytes")
        return bytes(content)

    def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            pool.clear()

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        asked = url
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._send(checked_address(url, self._environ), headers)
            if 200 <= response.status < 300:
                return response
            response.close()
            if not response.get_redirect_location() and response.status not in response.REDIRECT_STATUSES:
                raise HttpError(
                    shown_address(asked), response.status, retry_after=retry_after(response.headers), headers=response.headers
                )
            url = redirect_target(url, response.headers.get("Location", ""))
        raise StorageError(f"{shown_address(asked)}: more than {_MAX_REDIRECTS} redirects")

    def _send(self, address: SplitResult, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        url = address.geturl()
        headers = {"Accept-Encoding": "identity", "User-Agent": "trainwright", **headers}
        if self._token and origin(url) == self._token_origin:
            headers["Authorization"] = f"Bearer {self._token}"
        proxy = _proxy_for(address)
        key = (address.scheme, proxy)
        if key not in self._pools:
            context = tls_context() if address.scheme == "https" else None
            self._pools[key] = _proxy_pool(proxy, context) if proxy else urllib3.PoolManager(ssl_context=context, maxsize=_KEPT)
        pool = self._pools[key]
        try:
            # No redirects and no retries of urllib3: each address is checked first, and `Retries` has one budget for all.
            return pool.request(
                "GET",
                url,
                headers=headers,
                redirect=False,
                retries=False,
                timeout=self._timeout,
                preload_content=False,
                decode_content=False,
            )
        except (HTTPError, OSError) as error:
            raise unreachable(shown_address(url), error) from None


def check_token(token: str) -> None:
    """Raise StorageError, without the token, for one that fits in no header: errors of the libraries below quote it."""
    if not (token.isascii() and token.isprintable()):
        raise StorageError("the token contains a line break or other characters that are never part of one; set it again")


def tls_context() -> ssl.SSLContext:
    """Return a context that trusts the authorities of SSL_CERT_FILE, or of the system, or, in an image without any, certifi's."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return ssl.create_default_context()
    import certifi  # which the client of Kubernetes brings

    return ssl.create_default_context(cafile=certifi.where())


def pieces(response: urllib3.BaseHTTPResponse, url: str) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises ConnectionCut if it is not whole."""
    try:
        while piece := response.read1(_PIECE):
            yield piece
    except (HTTPError, OSError) as error:
        raise ConnectionCut(f"{shown_address(url)}: the connection was cut: {_reason(error)}") from None
    if missing := response.length_remaining:  # `read1` does not report it
        raise ConnectionCut(f"{shown_address(url)}: the server sent {missing} bytes less than it announced")


def _proxy_for(address: SplitResult) -> str:
    """Return the proxy that the environment names for an address, or "". Loopback addresses never use one."""
    host = address.hostname or ""
    proxies = getproxies_environment()
    proxy = proxies.get(address.scheme) or proxies.get("all") or ""
    if not proxy or is_loopback(host) or proxy_bypass_environment(host, proxies):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _proxy_pool(proxy: str, context: ssl.SSLContext | None) -> urllib3.ProxyManager:
    try:
        parts = urlsplit(proxy)
        if not parts.hostname:
            raise ValueError
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
        headers = urllib3.make_headers(proxy_basic_auth=user)
        return urllib3.ProxyManager(proxy, proxy_headers=headers, ssl_context=context, maxsize=_KEPT)
    except (ValueError, HTTPError) as error:  # an invalid port, a scheme such as socks5, no host
        wanted = (
            "is not supported; expected http://host:port" if isinstance(error, ProxySchemeUnknown) else "is not a valid address"
        )
        raise StorageError(f"the proxy {shown_address(proxy)} of the environment {wanted}") from None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait, given as a number or as a date."""
    try:
        return min(urllib3.Retry().parse_retry_after(headers["Retry-After"]), _LONGEST_PAUSE)
    except (KeyError, InvalidHeader, OverflowError, ValueError):
        return None


def unreachable(what: str, error: BaseException) -> StorageError:
    """Return the error for a request that got no response, without an address of the library."""
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = without_credentials(cause.verify_message)
            return Untrusted(f"{what}: the server's certificate is not trusted ({reason}); set SSL_CERT_FILE to the CA file")
    return Unreachable(f"{what} cannot be reached: {_reason(error)}")


def _reason(error: BaseException) -> str:
    # A refused connection is a NewConnectionError, which urllib3 counts among its timeouts.
    chain = [cause for cause in _chain(error) if not isinstance(cause, NewConnectionError)] or [error]
    if any(isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError) for cause in chain):
        said: object = "no answer in time"
    else:
        said = next((cause.strerror for cause in chain if isinstance(cause, OSError) and cause.strerror), chain[-1])
    through = "the proxy: " if any(isinstance(cause, ProxyError) for cause in chain) else ""
    return f"{through}{without_credentials(said)}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes: urllib3 wraps those of sockets."""
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inner = inner.__cause__ or next((each for each in inner.args if isinstance(each, BaseException)), None)


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds until the first answer, and without progress after it; the pauses between attempts."""

    first_contact: float = 30.0
    without_progress: float = 600.0
    backoff: Backoff = Backoff(0.5, 30.0)


class Retries:
    """The budget of one download. Thread-safe."""

    def __init__(
        self,
        policy: RetryPolicy = RetryPolicy(),
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ):
        self._policy, self._clock = policy, clock
        self._cancelled = threading.Event()
        self._sleep = sleep or self._cancelled.wait
        self._since, self._has_contact = clock(), False
        self._next_line, self._next_silence = self._since, self._since + _BETWEEN_LINES

    def progress(self) -> None:
        """Note that data has arrived."""
        self._has_contact, self._since = True, self._clock()
        self._next_silence = self._since + _BETWEEN_LINES

    def cancel(self) -> None:
        """End all pauses, and refuse further ones with Cancelled."""
        self._cancelled.set()

    def pause(self, error: StorageError, attempt: int) -> None:
        """Wait before attempt number `attempt` + 1. Raises `error` if it is permanent or the budget is spent, Cancelled."""
        self._wait(self._pause_after(error, attempt + 1))

    def check(self, what: str) -> None:
        """Log now and then that nothing arrives. Raises Unreachable after the budget is spent: a library may wait longer."""
        silent = self._clock() - self._since
        if silent > self._limit:
            raise Unreachable(f"{what} cannot be reached: nothing has arrived for {silent:.0f} seconds")
        if self._clock() >= self._next_silence:
            self._next_silence = self._clock() + _BETWEEN_LINES
            log.warning("event=download_waits silent_s=%.0f of=%r", silent, what)

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of a request, repeated while its errors are transient and the budget lasts."""
        result = retry(request, StorageError, self._pause_after, self._wait)
        self.progress()
        return result

    def _pause_after(self, error: StorageError, failures: int) -> float:
        self._check_cancelled()
        if isinstance(error, HttpError) and not self._has_contact:
            self.progress()  # the server has answered, if only with an error
        if not is_transient(error):
            raise error
        seconds = self._policy.backoff.pause(failures)
        if isinstance(error, HttpError) and error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        if self._clock() + seconds > self._since + self._limit:
            raise error
        if self._clock() >= self._next_line:  # many files that fail together are one story
            self._next_line = self._clock() + _BETWEEN_LINES
            log.warning("event=download_retry pause_s=%.1f reason=%r", seconds, str(error))
        return seconds

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        self._check_cancelled()

    @property
    def _limit(self) -> float:
        return self._policy.without_progress if self._has_contact else self._policy.first_contact

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the download was stopped") from None


class HttpError(StorageError):
    """The server answered with an error. `retry_after` is in seconds, if the server says so."""

    def __init__(self, address: str, status: int, *, retry_after: float | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(f"{address}: the server answers with status {status}")
        self.status, self.retry_after, self.headers = status, retry_after, headers or {}


class ConnectionCut(Unreachable):
    """The connection was lost, or the server sent less than it announced."""


class Untrusted(StorageError):
    """The server's certificate is not trusted. A retry cannot succeed."""


class RemoteChanged(StorageError):
    """The remote file was replaced during the download. A new attempt starts over."""


class Cancelled(StorageError):
    """Another transfer of the same download failed, so this one was stopped."""


def is_transient(error: Exception) -> bool:
    """Whether a retry may succeed."""
    if isinstance(error, HttpError):
        return error.status in _TRANSIENT
    return isinstance(error, Unreachable)
