"""Finds the subPath of a volume without ever leaving the volume, whatever links the containers of other pods have put there.

Each step is taken from an open folder and follows no link by itself, so that nothing can be swapped in between.
Source of the rule: pkg/volume/util/subpath of Kubernetes.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

_MOST_LINKS = 40
"""As in the kernel."""


_Missing = Callable[[int, str], os.stat_result]
"""Deals with a name that its folder (a descriptor) does not have: makes it, or raises FileNotFoundError."""


class SubPathEscape(Exception):
    """A subPath leads out of its volume."""


def find_sub_path(volume: Path, sub_path: str) -> Path:
    """Return the file or folder of the volume, without links in it. What is missing is made as folders of the volume's own mode.

    Raises SubPathEscape, and OSError for a file that is used as a folder, too many links, or missing rights.
    """
    top = volume.resolve(strict=True)
    mode = stat.S_IMODE(top.stat().st_mode)
    with ExitStack() as opened:
        names, _ = _walk(opened, top, sub_path, lambda folder, name: _make_folder(folder, name, mode))
        return top.joinpath(*names)


def read_in_volume(volume: Path, path: str, most: int) -> bytes:
    """Return the first `most` bytes of a file of the volume. Raises SubPathEscape, OSError (also for what is no regular file)."""
    with ExitStack() as opened:
        names, folder = _walk(opened, volume.resolve(strict=True), path, _is_missing)
        if not names:
            raise IsADirectoryError(path)
        descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{path} is not a regular file")
            return file.read(most)


def _walk(opened: ExitStack, top: Path, path: str, missing: _Missing) -> tuple[list[str], int]:
    """Return the names from `top` to the end of the path, and the opened folder that contains the last of them."""
    folders = [_open(opened, str(top), None)]
    names: list[str] = []
    pending, links = deque(_parts(path)), 0
    while pending:
        name = pending.popleft()
        if name == "..":
            if not names:
                raise SubPathEscape(f"{path!r} is outside of its volume")
            names.pop()
            folders.pop()
            continue
        found = _look(folders[-1], name, missing)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"too many links in {path!r}")
            pending.extendleft(reversed(_parts(os.readlink(name, dir_fd=folders[-1]))))
        else:
            names.append(name)
            if pending:
                folders.append(_open(opened, name, folders[-1]))
    return names, folders[-1]


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    if pure.is_absolute():
        raise SubPathEscape(f"{path!r} is outside of its volume")
    return pure.parts


def _look(folder: int, name: str, missing: _Missing) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return missing(folder, name)


def _is_missing(folder: int, name: str) -> os.stat_result:
    raise FileNotFoundError(name)


def _make_folder(parent: int, name: str, mode: int) -> os.stat_result:
    os.mkdir(name, 0o700, dir_fd=parent)
    with ExitStack() as opened:
        descriptor = _open(opened, name, parent)
        os.fchmod(descriptor, mode)
        return os.fstat(descriptor)


def _open(opened: ExitStack, name: str, folder: int | None) -> int:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    opened.callback(os.close, descriptor)
    return descriptor
