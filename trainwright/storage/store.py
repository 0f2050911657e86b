"""What the export of checkpoints asks of a store, whatever holds the bytes; and the store that a URI names."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainwright.storage.digests import Advance, silent
from trainwright.storage.uri import StorageUri


@dataclass(frozen=True)
class StoredFile:
    """One file of a store: its size in bytes and, where it is known, the hexadecimal SHA-256 of its contents."""

    size: int
    sha256: str = ""


class Store(Protocol):
    """Files by key (a relative path with `/`) below one URI."""

    uri: StorageUri

    def put(self, source: Path, key: str, advance: Advance = silent) -> StoredFile:
        """Store a local file, reading it once; returns size and digest of what was read. Raises StorageError."""
        ...

    def get(self, key: str, target: Path, advance: Advance = silent) -> StoredFile:
        """Fetch a file; it appears whole. Raises NotThere, StorageError."""
        ...

    def head(self, key: str) -> StoredFile | None:
        """What is stored under a key, or None; the digest only where the store keeps one."""
        ...

    def digest(self, key: str, advance: Advance = silent) -> str:
        """SHA-256 of a stored file, read again if need be. Raises NotThere."""
        ...

    def read(self, key: str) -> bytes:
        """A small file. Raises NotThere."""
        ...

    def create(self, key: str, content: bytes) -> None:
        """Write a small file that must not exist yet. Raises AlreadyThere; one of many writers wins."""
        ...

    def replace(self, key: str, content: bytes) -> None:
        """Write a small file, whole, over what is there."""
        ...

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Write a small file if it still has the content `old` (None: if it does not exist); False when it has not."""
        ...

    def honours_conditions(self, key: str) -> bool:
        """Whether it refuses to create what exists; tried with a small file of that name, which is removed. Raises StorageError."""
        ...

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        """Inside, nobody else who asks for the same key of the same store is; they wait. Raises StorageError."""
        ...


def open_store(uri: str | StorageUri) -> Store:
    """The store for an export URI. Raises StorageError for a scheme that cannot be exported to."""
    from trainwright.storage.errors import StorageError
    from trainwright.storage.file_store import FileStore

    parsed = StorageUri.parse(uri) if isinstance(uri, str) else uri
    if parsed.scheme == "file":
        return FileStore(parsed)
    if parsed.scheme == "s3":
        from trainwright.storage.s3_store import S3Store

        return S3Store(parsed)
    raise StorageError(f"{parsed}: exports to {parsed.scheme}:// are not supported yet; supported: file://, s3://")
