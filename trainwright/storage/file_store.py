"""A store in a local folder or on a network file system."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.atomic_file import create_atomically, sync_files, sync_folder
from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import AlreadyExists, NotFound, StorageError
from trainwright.storage.locks import file_lock
from trainwright.storage.plain_files import CHUNK, ProgressCallback, files_below, no_progress, open_plain, read_plain
from trainwright.storage.store import MAX_SMALL_FILE, Capabilities, FolderNames, Lock, StoredFile, lost_lock_first
from trainwright.storage.transfer import chunks_of, copy_file, copy_new_file, disk_errors, write_bytes
from trainwright.storage.uri import StorageUri

_LOCK_SECONDS = 6 * 3600.0
"""Maximum wait for another process: longer than an export of hundreds of gigabytes takes."""


class FileStore:
    """Implements `Store`. Keys that resolve to a path outside of the folder are rejected.

    `base` is the folder that the user named, `uri` or above it: only that one may be a link.
    """

    def __init__(self, uri: StorageUri, base: Path | None = None):
        self.uri = uri
        self._root = uri.path
        self._base = base or self._root
        self._folders: dict[str, Path] = {}

    def below(self, name: str) -> FileStore:
        return FileStore(self.uri.join(name), self._base)

    def parent(self) -> FileStore:
        return FileStore(StorageUri.from_path(self._root.parent), self._base if self._base != self._root else None)

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        path = self._path(key)
        if os.path.lexists(path):  # others may be reading it
            return copy_file(source, path, on_progress, within=within)
        return copy_new_file(source, path, on_progress, within=within)

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        path = self._existing(key)
        with disk_errors(target):
            target.unlink(missing_ok=True)
        return copy_new_file(path, target, on_progress)

    def head(self, key: str) -> StoredFile | None:
        path = self._path(key)
        with disk_errors(path):
            return StoredFile(path.stat().st_size) if path.is_file() else None

    def inspect(self, key: str) -> StoredFile | None:
        return self.head(key)

    def checksums(self, key: str, on_progress: ProgressCallback = no_progress) -> StoredFile:
        path, seen = self._existing(key), Checksums()
        with disk_errors(path), open_plain(path) as file:
            # To read from the disk: only unchanged pages are dropped, so this is done after a sync.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for chunk in chunks_of(file, CHUNK):
                seen.update(chunk)
                on_progress(len(chunk))
        return StoredFile(seen.size, seen.sha256, seen.crc64nvme)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        path = self._existing(key)
        with disk_errors(path), open_plain(path) as file:
            file.seek(start)
            return file.read(length)

    def list_files(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        root = self._path(prefix) if prefix else self._root
        with disk_errors(root):
            for path in files_below(root) if root.is_dir() else []:
                yield (Path(prefix) / path).as_posix(), (root / path).stat().st_size

    def list_folder(self, limit: int) -> FolderNames:
        root = self._folder("")
        folders, files, is_cut = list[str](), dict[str, int](), False
        with disk_errors(root), contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
            for entry in entries:
                if len(folders) + len(files) == limit:
                    is_cut = True
                    break
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        files[entry.name] = entry.stat(follow_symlinks=False).st_size
        return FolderNames(tuple(sorted(folders)), dict(sorted(files.items())), is_cut)

    def delete(self, key: str) -> None:
        """Remove a file, and the folders that it leaves empty."""
        path = self._path(key)
        with disk_errors(path):
            path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._root.resolve():  # the store itself stays, also an empty one
                return
            try:
                folder.rmdir()
            except OSError:  # not empty
                return

    def sync(self, keys: list[str]) -> None:
        paths = [self._path(key) for key in keys]
        with disk_errors(self._root):
            sync_files(paths)
            root, parents = self._folder(""), {path.parent for path in paths}
            for folder in {above for parent in parents for above in parent.parents if above.is_relative_to(root)}:
                sync_folder(folder)

    def check_writable(self) -> None:
        path = self._path(f".trainwright-probe-{secrets.token_hex(8)}")
        created = [folder for folder in path.parents if not folder.exists()]
        try:
            write_bytes(path, b"probe")
        finally:
            with disk_errors(path):
                path.unlink(missing_ok=True)
            for folder in created:
                with contextlib.suppress(OSError):  # another process has written to it meanwhile
                    folder.rmdir()

    def capabilities(self) -> Capabilities:
        return Capabilities(conditional_writes=True, checks_uploads=False)

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
            except NotFound:  # an absent file is a state to compare with
                current = None
            if current != old:
                return False
            self.replace(key, new)
            return True

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[Lock]:
        """Hold a hidden lock file in the folder. It is removed on release."""
        path = self._path(f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock")
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack = contextlib.ExitStack()
            held = stack.enter_context(file_lock(path, timeout=_LOCK_SECONDS))
        with stack, lost_lock_first(held):
            yield held

    def _existing(self, key: str) -> Path:
        path = self._path(key)
        with disk_errors(path):
            if not path.is_file():
                raise NotFound(f"{self.uri.join(key)} does not exist")
        return path

    def _path(self, key: str) -> Path:
        if "\0" in key:
            raise StorageError(f"{key!r} is not a valid key in {self.uri}: it contains a NUL byte")
        try:
            folder, _, name = key.rpartition("/")
            parent = self._folder(folder)
            path = parent / name
            if name in ("", ".", "..") or os.path.islink(path):
                path = path.resolve()
        except (OSError, RuntimeError, ValueError) as error:  # circular links
            raise StorageError(f"{key!r} is not a valid key in {self.uri}: {error}") from error
        root = self._folder("")
        if path == root or not path.is_relative_to(root):
            raise StorageError(f"the key {key!r} is outside of {self.uri}")
        return path

    def _folder(self, key: str) -> Path:
        """Return the resolved folder of keys; remembered, since thousands of files may be in one."""
        if key not in self._folders:
            self._folders[key] = (self._root / key).resolve()
            base = self._base.resolve()
            if not key and not self._folders[key].is_relative_to(base):
                del self._folders[key]
                raise StorageError(f"{self._root} is or contains a link out of {self._base}; remove it")
        return self._folders[key]
