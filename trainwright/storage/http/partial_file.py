"""The incomplete contents of a download, and the journal of what has arrived, in hidden files beside the target.

The journal survives `kill -9`. It is written after the data, so what it lists is in the partial file. After a power failure the data
may be missing all the same: then the digest differs, and for files without an expected digest the data is synced first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.http.errors import Cancelled
from trainwright.storage.plain_files import read_plain

_MAX_JOURNAL = 64 * 1024
_VERSION = 1
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Span = tuple[int, int]


def add_span(spans: list[Span], start: int, end: int) -> list[Span]:
    """Return sorted, disjoint spans with one more, joined where they touch."""
    result: list[Span] = []
    for first, last in spans:
        if last < start or first > end:
            result.append((first, last))
        else:
            start, end = min(start, first), max(end, last)
    return sorted([*result, (start, end)])


def missing_spans(spans: list[Span], size: int) -> list[Span]:
    """Return what sorted, disjoint spans leave out of a file of `size` bytes."""
    missing, position = [], 0
    for first, last in [*spans, (size, size)]:
        if first > position:
            missing.append((position, first))
        position = max(position, last)
    return missing


def partial_paths(target: Path) -> tuple[Path, Path]:
    """Return the paths of the partial file and of the journal. Hashed, since the target's name may have the maximum length."""
    stem = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}"
    return target.with_name(f"{stem}.partial"), target.with_name(f"{stem}.journal")


@dataclass
class PartialFile:
    """The partial file of `target`, open for several writers and one reader. `sync` syncs the data before the journal."""

    target: Path
    size: int
    validator: str
    """Identifies the contents: an expected digest or an ETag. With another one, what has arrived is dropped."""
    sync: bool
    journal_every: int
    """Bytes between two writes of the journal."""
    spans: list[Span] = field(default_factory=list)
    _descriptor: int = -1
    _journal: int = -1
    _unrecorded: int = 0
    _failure: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __enter__(self) -> PartialFile:
        data, journal = partial_paths(self.target)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = _open_regular(data)
        try:
            self._journal = _open_regular(journal)
            if os.fstat(self._descriptor).st_size == self.size:
                self.spans = self._recorded(journal)
            if not self.spans:
                os.ftruncate(self._descriptor, 0)
                self._record()
            os.ftruncate(self._descriptor, self.size)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Keep what has arrived."""
        if self._journal >= 0 and self._unrecorded:
            with contextlib.suppress(OSError):  # the disk is full: then the last record holds
                self._record()
        for descriptor in (self._descriptor, self._journal):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._journal = -1

    @property
    def arrived(self) -> int:
        """Bytes that have arrived."""
        return sum(last - first for first, last in self.spans)

    def missing(self) -> list[Span]:
        return missing_spans(self.spans, self.size)

    def write(self, data: memoryview, offset: int) -> None:
        """Write at an offset, and let the reader know. Raises OSError."""
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)
        with self._changed:
            self.spans = add_span(self.spans, offset, offset + len(data))
            self._unrecorded += len(data)
            if self._unrecorded >= self.journal_every:
                self._record()
            self._changed.notify_all()

    def read_arrived(self, buffer: memoryview, position: int) -> int:
        """Read at a position into the buffer, once the contents before its end have arrived. Raises what `fail` was given."""
        wanted = min(len(buffer), self.size - position)
        with self._changed:
            while self._front() < position + wanted:
                if self._failure is not None:
                    raise self._failure
                self._changed.wait()
        return os.preadv(self._descriptor, [buffer[:wanted]], position)

    def fail(self, error: BaseException) -> None:
        """Let the reader raise an error. The first one counts, except that a real one replaces Cancelled."""
        with self._changed:
            if self._failure is None or isinstance(self._failure, Cancelled):
                self._failure = error
            self._changed.notify_all()

    def publish(self) -> None:
        """Rename the complete file to its target. It is not synced. Raises OSError."""
        data, journal = partial_paths(self.target)
        os.fchmod(self._descriptor, 0o644)
        os.replace(data, self.target)
        self._unrecorded = 0
        journal.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove what has arrived. Raises OSError."""
        self._unrecorded = 0
        for path in partial_paths(self.target):
            path.unlink(missing_ok=True)

    def _front(self) -> int:
        return self.spans[0][1] if self.spans and self.spans[0][0] == 0 else 0

    def _record(self) -> None:
        if self.sync:
            os.fdatasync(self._descriptor) if hasattr(os, "fdatasync") else os.fsync(self._descriptor)
        record = {"version": _VERSION, "size": self.size, "validator": self.validator, "arrived": self.spans}
        text = json.dumps(record).encode()
        os.ftruncate(self._journal, len(text)) if os.fstat(self._journal).st_size > len(text) else None
        os.pwrite(self._journal, text, 0)
        self._unrecorded = 0

    def _recorded(self, journal: Path) -> list[Span]:
        """Return the spans of an earlier attempt at the same contents, or none."""
        try:
            record = json.loads(read_plain(journal, _MAX_JOURNAL))
            if (record["version"], record["size"], record["validator"]) != (_VERSION, self.size, self.validator):
                return []
            spans: list[Span] = []
            for first, last in record["arrived"]:
                if not (isinstance(first, int) and isinstance(last, int) and 0 <= first < last <= self.size):
                    return []
                spans = add_span(spans, first, last)
        except (ValueError, TypeError, KeyError, RecursionError, UnsafeFile):
            return []
        return spans


def _open_regular(path: Path) -> int:
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        if os.path.islink(path):
            raise UnsafeFile(f"{path} is a link; remove it") from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StorageError(f"{path} is not a regular file; remove it")
