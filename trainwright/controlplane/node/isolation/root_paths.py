"""Opens and creates paths inside a container's new root, which is not yet the root of this process.

Symbolic links are followed as the container will follow them, and never lead out of its root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

_MAX_LINKS = 40
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EOVERFLOW)
"""What mkdir in a folder of the host says, in an overlay (of another owner) or in a read-only mount."""


class RootPaths:
    """`root` is the open root folder. `cover` is called with (path, open folder) to make a folder of the host writable."""

    def __init__(self, cover: Callable[[str, int], bool]):
        self.root = -1
        self._cover = cover

    def existing(self, path: str) -> int:
        """Open an existing path. Raises OSError."""
        return self.locate(path, "")

    def find(self, path: str) -> int | None:
        """Open a path, or return None if it is missing or unreadable."""
        try:
            return self.locate(path, "")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None

    def locate(self, path: str, kind: str, *, may_cover: bool = False) -> int:
        """Open a path with O_PATH. If `kind` is "folder" or "file", create what is missing (0755 and 0644). Raises OSError."""
        return self.locate_real(path, kind, may_cover=may_cover)[0]

    def locate_real(self, path: str, kind: str, *, may_cover: bool = False) -> tuple[int, str]:
        """As `locate`, and return the path without links as well."""
        pending = path.split("/")[::-1]
        opened = [(self.root, "")]
        links = 0
        try:
            while pending:
                name = pending.pop()
                if name in ("", "."):
                    continue
                if name == "..":
                    if len(opened) > 1:
                        os.close(opened.pop()[0])
                    continue
                is_last = not any(part not in ("", ".") for part in pending)
                entry = self._step(opened, name, "file" if kind == "file" and is_last else kind and "folder", may_cover=may_cover)
                if stat.S_ISLNK(os.fstat(entry).st_mode):
                    links += 1
                    target = os.readlink("", dir_fd=entry)
                    os.close(entry)
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    pending += target.split("/")[::-1]
                    if target.startswith("/"):
                        self._close(opened[1:])
                        del opened[1:]
                else:
                    opened.append((entry, f"{opened[-1][1]}/{name}"))
            return os.dup(opened[-1][0]), opened[-1][1] or "/"
        finally:
            self._close(opened[1:])

    def _step(self, opened: list[tuple[int, str]], name: str, kind: str, *, may_cover: bool) -> int:
        folder, path = opened[-1]
        try:
            return _open(name, folder)
        except FileNotFoundError:
            if not kind:
                raise
        try:
            return _create(name, folder, kind)
        except OSError as error:
            if not (may_cover and error.errno in _NOT_WRITABLE and path and self._cover(path, folder)):
                raise
        opened[-1] = (self.locate(path, ""), path)  # the overlay, instead of what it covers
        os.close(folder)
        return _create(name, opened[-1][0], kind)

    def _close(self, opened: list[tuple[int, str]]) -> None:
        for file, _ in opened:
            os.close(file)


def _create(name: str, folder: int, kind: str) -> int:
    if kind == "folder":
        os.mkdir(name, 0o755, dir_fd=folder)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder))
    return _open(name, folder)


def _open(name: str, folder: int) -> int:
    return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
