"""Paths inside a container's new root, which is not yet the root of this process: opened and created, or reserved for the node.

Symbolic links are followed as the container will follow them, and never lead out of its root. No volume may cover a reserved path.
Standard library only, because a container's supervisor loads this file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

_MAX_LINKS = 40
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EOVERFLOW)
"""What mkdir in a folder of the host says, in an overlay (of another owner) or in a read-only mount."""
KERNEL_FILE_SYSTEMS = frozenset(
    ("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "efivarfs", "pstore")
)
"""File systems whose files are settings of the machine: a container that sees them by a volume may not write them."""
_SHM = "/dev/shm"  # noqa: S108  (a path of the container)


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
                    continue  # the same folder
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
        except FileNotFoundError:  # created below, if it may be
            if not kind:
                raise
        try:
            return _create(name, folder, kind)
        except OSError as error:  # a read-only folder of the host can be covered by an overlay
            if not (may_cover and error.errno in _NOT_WRITABLE and path and self._cover(path, folder)):
                raise
        opened[-1] = (self.locate(path, ""), path)  # the overlay, instead of what it covers
        os.close(folder)
        return _create(name, opened[-1][0], kind)

    def _close(self, opened: list[tuple[int, str]]) -> None:
        for file, _ in opened:
            os.close(file)


def _open(name: str, folder: int) -> int:
    return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _create(name: str, folder: int, kind: str) -> int:
    if kind == "folder":
        os.mkdir(name, 0o755, dir_fd=folder)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder))
    return _open(name, folder)


def is_reserved(target: str, source: str | None, *, is_volume: bool) -> bool:
    """Whether nothing may be mounted at `target`, an absolute path without `..` and links.

    Below /dev a pod's volumes may be /dev/shm, and `source`s that are devices of the host; the node's own files may be anywhere.
    """
    if target == "/dev" or any(is_in(target, folder) for folder in ("/proc", "/sys")):
        return True
    return is_volume and is_in(target, "/dev") and not is_in(target, _SHM) and not (source and names_devices(source))


def names_devices(source: str) -> bool:
    """Whether a path of the host is in its /dev, so that a pod that mounts it wants the devices."""
    return is_in(source, "/dev") and not is_in(source, _SHM)


def is_in(path: str, folder: str) -> bool:
    """Whether a clean path is that of a folder, or of something below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
