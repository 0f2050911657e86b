"""A store in a local folder or on a network file system."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.atomic_file import create_atomically
from trainwright.storage.digests import ProgressCallback, file_digest, no_progress
from trainwright.storage.errors import AlreadyExists, NotFound, StorageError
from trainwright.storage.locks import file_lock
from trainwright.storage.plain_files import read_plain
from trainwright.storage.store import MAX_SMALL_FILE, StoredFile
from trainwright.storage.transfer import copy_file, disk_errors, write_bytes
from trainwright.storage.uri import StorageUri


class FileStore:
    """Implements `Store`. Keys that resolve to a path outside of the folder are rejected.

    `base` is the folder that the user named, `uri` or above it: only that one may be a link.
    """

    def __init__(self, uri: StorageUri, base: Path | None = None):
        self.uri = uri
        self._root = uri.path
        self._base = base or self._root

    def below(self, name: str) -> FileStore:
        return FileStore(self.uri.join(name), self._base)

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        return copy_file(source, self._path(key), on_progress, within=within)

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        return copy_file(self._existing(key), target, on_progress)

    def head(self, key: str) -> StoredFile | None:
        path = self._path(key)
        with disk_errors(path):
            return StoredFile(path.stat().st_size) if path.is_file() else None

    def digest(self, key: str, on_progress: ProgressCallback = no_progress) -> str:
        path = self._existing(key)
        with disk_errors(path):
            return file_digest(path, on_progress)

    def read(self, key: str) -> bytes:
        path = self._existing(key)
        with disk_errors(path):
            return read_plain(path, MAX_SMALL_FILE)

    def create(self, key: str, content: bytes) -> None:
        path = self._path(key)
        try:
            with disk_errors(path):
                create_atomically(path, content)
        except AlreadyExists as error:
            raise AlreadyExists(f"{self.uri.join(key)} exists") from error

    def replace(self, key: str, content: bytes) -> None:
        write_bytes(self._path(key), content)

    def compare_and_swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        with self.lock(key):
            try:
                current: bytes | None = self.read(key)
            except NotFound:
                current = None
            if current != old:
                return False
            self.replace(key, new)
            return True

    def supports_conditional_writes(self, key: str) -> bool:
        path = self._path(key)
        created = [folder for folder in path.parents if not folder.exists()]
        try:
            self.create(key, b"probe")
            self.create(key, b"probe")
        except AlreadyExists:
            return True
        finally:
            with disk_errors(path):
                path.unlink(missing_ok=True)
            for folder in created:
                with contextlib.suppress(OSError):  # another process has written to it meanwhile
                    folder.rmdir()
        return False

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold a hidden lock file in the folder. It is removed on release."""
        path = self._path(f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack = contextlib.ExitStack()
            stack.enter_context(file_lock(path))
        with stack:
            yield

    def _existing(self, key: str) -> Path:
        path = self._path(key)
        with disk_errors(path):
            if not path.is_file():
                raise NotFound(f"{self.uri.join(key)} does not exist")
        return path

    def _path(self, key: str) -> Path:
        try:
            base, root, path = self._base.resolve(), self._root.resolve(), (self._root / key).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # circular links, a NUL byte
            raise StorageError(f"{key!r} is not a valid key in {self.uri}: {error}") from error
        if not root.is_relative_to(base):
            raise StorageError(f"{self._root} is or contains a link out of {self._base}; remove it")
        if path == root or not path.is_relative_to(root):
            raise StorageError(f"the key {key!r} is outside of {self.uri}")
        return path
