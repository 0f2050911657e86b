"""Downloads one large file by several ranges at once, verified in order while they arrive, and resumed after a kill."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.storage.errors import StorageError
from trainwright.storage.http.abort_scope import AbortScope
from trainwright.storage.http.client import HttpResponse
from trainwright.storage.http.download_session import DownloadSession
from trainwright.storage.http.errors import (
    MAX_EXPIRED,
    Cancelled,
    ConnectionCut,
    RangesIgnored,
    RemoteChanged,
    WrongDigest,
    has_expired,
)
from trainwright.storage.http.partial_file import PartialFile, Span
from trainwright.storage.http.remote_file import RemoteFile

_STREAMS = 4
"""Concurrent ranges of one file."""
_SPAN = 64 * 1024 * 1024
"""Bytes of a range. The hub is asked for a new address of each, and limits requests."""


def download_ranges(session: DownloadSession, remote: RemoteFile, size: int, target: Path) -> None:
    """Download a file of `size` bytes to `target`, not synced to disk. It must have an identity.

    Raises WrongDigest, RangesIgnored, RemoteChanged, HttpError, Unreachable, StorageError, Cancelled, OSError.
    """
    sizes, sync = session.sizes, remote.digest is None
    with PartialFile(target, size, remote.identity, sync=sync, journal_every=sizes.journal_every) as partial:
        session.on_progress(partial.arrived)
        fetch = _RangeFetch(session, remote, partial, _spans(partial.missing(), size, sizes.part))
        threads = [threading.Thread(target=fetch.run, daemon=True) for _ in range(min(_STREAMS, len(fetch.spans)))]
        for thread in threads:
            thread.start()
        try:
            is_right = _has_digest(remote, size, partial, sizes.read_back)
        except (RemoteChanged, RangesIgnored):
            fetch.stop(threads)
            session.on_progress(-partial.arrived)
            partial.discard()
            raise
        finally:
            fetch.stop(threads)
        if not is_right:
            partial.discard()
            raise WrongDigest(size)
        partial.publish()


def _has_digest(remote: RemoteFile, size: int, partial: PartialFile, buffer_size: int) -> bool:
    """Read the file in order while it arrives. Returns whether its digest is the expected one."""
    hasher = remote.digest.hasher(size) if remote.digest is not None else None
    buffer = memoryview(bytearray(buffer_size))
    position = 0
    while position < size:
        count = partial.read_arrived(buffer, position)
        if hasher is not None:
            hasher.update(buffer[:count])
        position += count
    return hasher is None or remote.digest is None or hasher.hexdigest() == remote.digest.value


def _spans(missing: list[Span], size: int, least: int) -> list[Span]:
    """Cut what is missing into ranges of at least so many bytes, first ones last, so that they can be popped."""
    length = min(_SPAN, max(least, -(-size // (2 * _STREAMS))))
    return [(start, min(start + length, end)) for first, end in missing for start in range(first, end, length)][::-1]


@dataclass
class _RangeFetch:
    """The threads that fetch the ranges of one file. `run` is the body of each."""

    session: DownloadSession
    remote: RemoteFile
    partial: PartialFile
    spans: list[Span]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_stopped: bool = False
    _location: str = ""
    """Where the last redirect led: asked directly until its signature expires."""
    _scope: AbortScope = field(default_factory=AbortScope)

    def run(self) -> None:
        buffer = memoryview(bytearray(self.session.sizes.range_buffer))
        try:
            while (span := self._next_span()) is not None:
                self._fetch(*span, buffer)
        except BaseException as error:  # raised by the thread that reads the file
            self.partial.fail(error)

    def stop(self, threads: list[threading.Thread]) -> None:
        """End all threads, without waiting for their servers."""
        with self._lock:
            self._is_stopped = True
        self._scope.abort()
        for thread in threads:
            thread.join()

    def _next_span(self) -> Span | None:
        with self._lock:
            return self.spans.pop() if self.spans and not self._is_stopped else None

    def _fetch(self, position: int, end: int, buffer: memoryview) -> None:
        attempt = refused = 0
        while position < end:
            location = self._location
            try:
                with self._open(location or self.remote.url, position, end) as response:
                    while position < end:
                        count = response.readinto(buffer[: min(len(buffer), end - position)])
                        if not count:
                            raise ConnectionCut(f"{self.remote.name}: the answer ends {end - position} bytes early")
                        self.partial.write(buffer[:count], position)
                        position += count
                        attempt = refused = 0
                        self.session.retries.progress()
                        self.session.on_progress(count)
            except StorageError as error:
                if self._is_stopped:
                    raise Cancelled("the download was stopped") from None
                if self._location == location:
                    self._location = ""  # the next attempt may be sent to a server that works
                if has_expired(error, was_redirected=bool(location)) and refused < MAX_EXPIRED:
                    refused += 1
                    if location:
                        continue  # ask for a new address at once
                    error = ConnectionCut(str(error))
                self.session.retries.pause(error, attempt, is_stopped=lambda: self._is_stopped)
                attempt += 1

    def _open(self, url: str, position: int, end: int) -> HttpResponse:
        response = self.session.client.open(url, {"Range": f"bytes={position}-{end - 1}"}, scope=self._scope)
        try:
            self.remote.check_part(response, position)
        except BaseException:
            response.close()
            raise
        if response.url != self.remote.url:
            self._location = response.url
        return response
