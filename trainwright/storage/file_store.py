"""A folder on this machine, or on a network file system, as a store."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.digests import Advance, file_digest, silent
from trainwright.storage.errors import AlreadyThere, NotThere, StorageError
from trainwright.storage.locks import exclusive
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import copy_file, disk_errors, write_bytes
from trainwright.storage.uri import StorageUri
from trainwright.storage.whole_file import create_whole


class FileStore:
    """Implements `Store`. Keys never lead out of the folder."""

    def __init__(self, uri: StorageUri):
        self.uri = uri
        self._root = uri.path

    def put(self, source: Path, key: str, advance: Advance = silent) -> StoredFile:
        return copy_file(source, self._path(key), advance)

    def get(self, key: str, target: Path, advance: Advance = silent) -> StoredFile:
        return copy_file(self._existing(key), target, advance)

    def head(self, key: str) -> StoredFile | None:
        path = self._path(key)
        with disk_errors(path):
            return StoredFile(path.stat().st_size) if path.is_file() else None

    def digest(self, key: str, advance: Advance = silent) -> str:
        path = self._existing(key)
        with disk_errors(path):
            return file_digest(path, advance)

    def read(self, key: str) -> bytes:
        path = self._existing(key)
        with disk_errors(path):
            return path.read_bytes()

    def create(self, key: str, content: bytes) -> None:
        path = self._path(key)
        try:
            with disk_errors(path):
                create_whole(path, content)
        except AlreadyThere as error:
            raise AlreadyThere(f"{self.uri.join(key)} exists") from error

    def replace(self, key: str, content: bytes) -> None:
        write_bytes(self._path(key), content)

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        with self.exclusive(key):
            try:
                current: bytes | None = self.read(key)
            except NotThere:
                current = None
            if current != old:
                return False
            self.replace(key, new)
            return True

    def honours_conditions(self, key: str) -> bool:
        path = self._path(key)
        made = [folder for folder in path.parents if not folder.exists()]
        try:
            self.create(key, b"probe")
            self.create(key, b"probe")
        except AlreadyThere:
            return True
        finally:
            with disk_errors(path):
                path.unlink(missing_ok=True)
            for folder in made:
                with contextlib.suppress(OSError):  # somebody has begun to use it meanwhile
                    folder.rmdir()
        return False

    @contextlib.contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """By a hidden lock file in the folder, only while it is held."""
        path = self._path(f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            held = contextlib.ExitStack()
            held.enter_context(exclusive(path))
        with held:
            yield

    def _existing(self, key: str) -> Path:
        path = self._path(key)
        with disk_errors(path):
            if not path.is_file():
                raise NotThere(f"{self.uri.join(key)} does not exist")
        return path

    def _path(self, key: str) -> Path:
        try:
            root, path = self._root.resolve(), (self._root / key).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a zero byte
            raise StorageError(f"{key!r} is no key of a file in {self.uri}: {error}") from error
        if path == root or not path.is_relative_to(root):
            raise StorageError(f"the key {key!r} leads out of {self.uri}")
        return path
