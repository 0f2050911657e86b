"""Errors of requests over http(s). No message contains a query, which may be a signature, or a header."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.storage.errors import StorageError, Unreachable

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})
"""520 to 524: a content delivery network cannot reach its origin."""


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
