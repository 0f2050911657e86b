"""Errors of requests over http(s). No message contains a query, which may be a signature, or a header."""

from __future__ import annotations

from http.client import HTTPMessage

from trainwright.storage.errors import StorageError, Unreachable

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
"""520 to 524: a content delivery network cannot reach its origin."""


class HttpError(StorageError):
    """The server answered with an error. `code` is the hub's X-Error-Code; `retry_after` is in seconds, if the server says so."""

    def __init__(
        self,
        address: str,
        status: int,
        *,
        code: str = "",
        detail: str = "",
        retry_after: float | None = None,
        was_redirected: bool = False,
        headers: HTTPMessage | None = None,
    ):
        described = f"status {status}" + (f" ({detail})" if detail else "")
        super().__init__(f"{address}: the server answers with {described}")
        self.status, self.code, self.detail = status, code, detail
        self.retry_after, self.was_redirected = retry_after, was_redirected
        self.headers = headers if headers is not None else HTTPMessage()


class ConnectionCut(Unreachable):
    """The connection was lost, or the server sent less than it announced."""


class Untrusted(StorageError):
    """The server's certificate is not trusted. A retry cannot succeed."""


class RemoteChanged(StorageError):
    """The remote file was replaced during the download. A new attempt starts over."""


class RangesIgnored(StorageError):
    """The server sends the whole file although a range was requested."""


class Cancelled(StorageError):
    """Another transfer of the same download failed, so this one was stopped."""


def is_transient(error: Exception) -> bool:
    """Whether a retry may succeed."""
    if isinstance(error, HttpError):
        return error.status in _TRANSIENT
    return isinstance(error, Unreachable)


class WrongDigest(Exception):
    """A whole file has arrived, `size` bytes, whose digest is not the expected one."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size


MAX_EXPIRED = 3
"""New addresses that are asked for in a row."""
_EXPIRED = (400, 401, 403, 404, 410)
"""Answers of a redirect's target whose signature has expired."""


def has_expired(error: StorageError, *, was_redirected: bool) -> bool:
    """Whether the target of a redirect has refused, so that a new address from the same server may help."""
    return isinstance(error, HttpError) and (was_redirected or error.was_redirected) and error.status in _EXPIRED
