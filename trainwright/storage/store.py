"""The protocol of all stores, and changing a small file in one that several processes change.

It imports no store, so that every store can import it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainwright.backoff import Backoff
from trainwright.storage.errors import LockLost, NotFound, StorageError
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
MAX_SMALL_FILE = 256 * 1024 * 1024
"""A larger file is not read into memory. The manifest of a million files is smaller."""
_ATTEMPTS, _BACKOFF = 12, Backoff(0.05, 1.0, jitter=1.0)
"""An attempt fails only if another process has succeeded meanwhile."""


@dataclass(frozen=True)
class StoredFile:
    """A file in a store: its size in bytes, its hexadecimal SHA-256, its CRC64NVME in base64. Empty means unknown."""

    size: int
    sha256: str = ""
    crc64nvme: str = ""


@dataclass(frozen=True)
class Capabilities:
    """What a store can do. It is found out by trying, since several S3 implementations ignore what they do not know."""

    conditional_writes: bool
    """It refuses to create what exists, and to replace what has changed. Without that there are no locks."""
    checks_uploads: bool
    """It computes the CRC64NVME of what arrives and refuses an upload with another one. Without that uploads are read back."""


@dataclass(frozen=True)
class FolderNames:
    """The names directly in a folder of a store, sorted: its folders, and its files with their sizes in bytes.

    `is_cut` is whether there are more.
    """

    folders: tuple[str, ...]
    files: dict[str, int]
    is_cut: bool = False


class Lock(Protocol):
    """A lock that is held. It may be lost: a process that was frozen for longer than the lease wakes up without it."""

    def require(self) -> None:
        """Raise LockLost if the lock is not held any more."""
        ...


@contextmanager
def lost_lock_first(lock: Lock) -> Iterator[None]:
    """Raise LockLost in place of an error of the block if the lock was lost: its next holder removes what the block has stored."""
    try:
        yield
    except LockLost:
        raise
    except StorageError as error:
        try:
            lock.require()
        except LockLost as lost:
            raise lost from error
        except StorageError as unknown:
            log.debug("event=lock_not_checked error=%s", unknown)
        raise error


class Store(Protocol):
    """Files below one URI, addressed by key: a relative path with `/`."""

    uri: StorageUri

    def below(self, name: str) -> Store:
        """The part of this store below a name, over the same connections."""
        ...

    def parent(self) -> Store:
        """The store of the folder that this one is in, over the same connections. Raises StorageError if it is a whole bucket."""
        ...

    def check_writable(self) -> None:
        """Write and remove a small file, and leave nothing. Raises StorageError."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what the store can do. The first call may write and remove a small file. Raises StorageError."""
        ...

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        """Upload a local regular file, none outside of the folder `within`, reading it once.

        Returns size and checksums of the data that was read. Whether that has arrived is known only from a store that
        `checks_uploads`. A killed upload may leave a part of the file. Raises StorageError.
        """
        ...

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        """Download a file to `target`, whose folder only this process uses. Raises NotFound, StorageError.

        A killed download leaves a shorter file, and none is synced to the disk: `durable.sync_files` does that for all.
        """
        ...

    def head(self, key: str) -> StoredFile | None:
        """Return the file's size, or None if it does not exist."""
        ...

    def inspect(self, key: str) -> StoredFile | None:
        """Return size and CRC64NVME as far as the store reports it, or None if the file does not exist."""
        ...

    def checksums(self, key: str, on_progress: ProgressCallback = no_progress) -> StoredFile:
        """Compute size and checksums of a stored file from its contents. Raises NotFound."""
        ...

    def read(self, key: str) -> bytes:
        """Read a small file, of at most MAX_SMALL_FILE bytes. Raises NotFound, StorageError."""
        ...

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read a part of a file, in bytes; shorter at its end. Raises NotFound, StorageError."""
        ...

    def create(self, key: str, content: bytes) -> None:
        """Create a small file. Of concurrent writers exactly one succeeds. Raises AlreadyExists."""
        ...

    def replace(self, key: str, content: bytes) -> None:
        """Write a small file atomically, replacing an existing one."""
        ...

    def compare_and_swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Write a small file if its content is `old` (None: if it does not exist). Returns whether it was written."""
        ...

    def list_files(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield key and size of all files whose key is below the folder `prefix`, in any order. Raises StorageError."""
        ...

    def list_folder(self, limit: int) -> FolderNames:
        """Return the first `limit` names directly in this folder, without reading what is below; none if it does not exist.

        Links are left out. Raises StorageError.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove a file. A missing one is not an error. Raises StorageError."""
        ...

    def sync(self, keys: list[str]) -> None:
        """Make files that were put durable, where that is not done by putting them."""
        ...

    def lock(self, key: str) -> AbstractContextManager[Lock]:
        """Hold an exclusive lock on a key of this store; other callers wait for it. Raises StorageError."""
        ...


def read_if_present(store: Store, key: str) -> bytes | None:
    """Return the contents of a small file, or None if it does not exist. Raises StorageError."""
    try:
        return store.read(key)
    except NotFound:
        return None


def change_file(store: Store, key: str, change: Callable[[bytes | None], bytes | None], *, advice: str = "try again") -> None:
    """Write what `change` returns for the contents (None: there is no file). If it returns None, nothing is written.

    Raises StorageError, with the advice, if other processes have changed the file at every attempt.
    """
    for _ in _BACKOFF.attempts(_ATTEMPTS):
        old = read_if_present(store, key)
        new = change(old)
        if new is None or new == old or store.compare_and_swap(key, old, new):
            return
    raise StorageError(f"{store.uri.join(key)}: changed by others at every attempt; {advice}")
