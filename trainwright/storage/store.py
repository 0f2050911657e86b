"""The protocol of all stores. It imports no store, so that every store can import it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainwright.storage.digests import ProgressCallback, no_progress
from trainwright.storage.uri import StorageUri

MAX_SMALL_FILE = 256 * 1024 * 1024
"""A larger file is not read into memory. The manifest of a million files is smaller."""


@dataclass(frozen=True)
class StoredFile:
    """A file in a store: its size in bytes and its hexadecimal SHA-256, or an empty string if that is unknown."""

    size: int
    sha256: str = ""


class Store(Protocol):
    """Files below one URI, addressed by key: a relative path with `/`."""

    uri: StorageUri

    def below(self, name: str) -> Store:
        """The part of this store below a name, over the same connections."""
        ...

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        """Upload a local regular file, none outside of the folder `within`. Returns size and digest of the data that was read.

        Raises StorageError.
        """
        ...

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        """Download a file to `target`, atomically. Raises NotFound, StorageError."""
        ...

    def head(self, key: str) -> StoredFile | None:
        """Return the file's metadata, or None if it does not exist. The digest is set only if the store records one."""
        ...

    def digest(self, key: str, on_progress: ProgressCallback = no_progress) -> str:
        """Compute the SHA-256 of a stored file from its contents. Raises NotFound."""
        ...

    def read(self, key: str) -> bytes:
        """Read a small file, of at most MAX_SMALL_FILE bytes. Raises NotFound, StorageError."""
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

    def supports_conditional_writes(self, key: str) -> bool:
        """Test whether the store rejects creating a file that exists. Writes and removes a small file. Raises StorageError."""
        ...

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Hold an exclusive lock on a key of this store; other callers wait for it. Raises StorageError."""
        ...
