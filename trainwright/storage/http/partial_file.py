"""The incomplete contents of a download, in a hidden file beside the target that a later process resumes.

Its name has the target and what identifies the contents, so that nothing else must be stored. Contents without an expected digest
are synced step by step: after a power failure, the bytes of a file may be missing although its size counts them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from trainwright.storage.digests import CHUNK
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.http.content_digest import ContentDigest
from trainwright.storage.http.errors import RemoteChanged

SYNCED = 16 * 1024 * 1024
"""Bytes between two syncs of contents without a digest; a killed process loses at most so many."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def partial_path(target: Path, identity: str) -> Path:
    """Return the path of the partial file. Hashed, since the target's name may have the maximum length."""
    return target.with_name(f".{hashlib.sha256(os.fsencode(target.name) + b'/' + identity.encode()).hexdigest()[:16]}.partial")


class PartialFile:
    """The partial file of `target`, for one writer. Leaving the context keeps what has arrived; `count` is its number of bytes.

    Without an identity, it is dropped at the beginning. `on_chunk` is called while what is kept is read. Raises UnsafeFile,
    StorageError, OSError.
    """

    def __init__(
        self,
        target: Path,
        name: str,
        size: int | None,
        digest: ContentDigest | None,
        identity: str,
        on_chunk: Callable[[], object] = lambda: None,
    ):
        self.name, self._on_chunk = name, on_chunk
        self._target, self._size, self._digest = target, size, digest
        self._path = partial_path(target, identity)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = _open_regular(self._path)
        try:
            self._begin(os.fstat(self._descriptor).st_size if identity else 0)
        except BaseException:
            self.__exit__()
            raise

    def _begin(self, kept: int) -> None:
        if self._digest is None:
            kept -= kept % SYNCED
        if self._size is not None and kept > self._size:
            kept = 0
        os.ftruncate(self._descriptor, kept)
        self.count = 0
        self._hasher = self._digest.hasher(self._size or 0) if self._digest is not None else None
        while self.count < kept:
            data = os.pread(self._descriptor, min(CHUNK, kept - self.count), self.count)
            if self._hasher is not None:
                self._hasher.update(data)
            self.count += len(data)
            self._on_chunk()

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, data: bytes) -> None:
        """Append. Raises RemoteChanged for more bytes than the file has, OSError."""
        if self._size is not None and self.count + len(data) > self._size:
            raise RemoteChanged(f"{self.name} has more than {self._size} bytes: it was replaced; try again")
        view, before = memoryview(data), self.count
        while view:
            written = os.pwrite(self._descriptor, view, self.count)
            self.count, view = self.count + written, view[written:]
        if self._hasher is not None:
            self._hasher.update(data)
        elif before // SYNCED < self.count // SYNCED:
            os.fdatasync(self._descriptor) if hasattr(os, "fdatasync") else os.fsync(self._descriptor)

    def restart(self) -> None:
        """Drop what has arrived. Raises OSError."""
        self._begin(0)

    def publish(self) -> bool:
        """Rename the file to its target, not synced, if it is whole and has its digest; else remove it. Returns whether it has."""
        has_digest = self._digest is None or self._hasher is None or self._hasher.hexdigest() == self._digest.value
        if self._size in (None, self.count) and has_digest:
            os.replace(self._path, self._target)
            return True
        self.discard()
        return False

    def discard(self) -> None:
        """Remove what has arrived. Raises OSError."""
        self._path.unlink()


def _open_regular(path: Path) -> int:
    try:
        descriptor = os.open(path, _FLAGS, 0o644)
    except OSError as error:
        if os.path.islink(path):
            raise UnsafeFile(f"{path} is a link; remove it") from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StorageError(f"{path} is not a regular file; remove it")
