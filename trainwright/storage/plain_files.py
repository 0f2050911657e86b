"""Reads files from folders that others can write to: only regular files, and none outside of the folder.

A checkpoint or a dataset may come from anybody with access to the volume. A link in it to `/proc/self/environ` would publish the
credentials of the process that exports it, and a named pipe would stop it for ever.

SHA-256 of files, computed in one pass with bounded memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainwright.storage.errors import UnsafeFile

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NAMED = 5
"""Refused files that an error names."""
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
CHUNK = 4 * 1024 * 1024
ProgressCallback = Callable[[int], None]
"""Called with the number of bytes processed since the last call."""


@dataclass(frozen=True)
class FolderFiles:
    """What is below a folder: `files` to read, relative to it and sorted, and what is refused, with the reason."""

    files: tuple[Path, ...]
    refused: dict[Path, str]

    def require_none_refused(self, folder: Path, is_wanted: Callable[[Path], bool] = lambda _path: True) -> None:
        """Raise UnsafeFile, which names the refused files, if there are any that are wanted."""
        refused = [f"{path} is {reason}" for path, reason in self.refused.items() if is_wanted(path)]
        if refused:
            named, more = refused[:_NAMED], f"; {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
            raise UnsafeFile(f"{folder}: only regular files inside the folder are read: {'; '.join(named)}{more}; remove them")


def folder_files(folder: Path) -> FolderFiles:
    """Find the regular files below a folder. Raises OSError.

    A link counts as its file if that is regular and inside the folder. In a snapshot of the hub's cache, links to the blobs
    of the same repository count too. Links to folders are refused.
    """
    boundary = _boundary(folder)
    files, refused = [], {}
    folders = [""]
    while folders:
        inner = folders.pop()
        with os.scandir(folder / inner) as entries:
            for entry in entries:
                path = f"{inner}/{entry.name}" if inner else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False) or (reason := _refusal(folder / path, boundary)) is None:
                    files.append(Path(path))
                elif reason:
                    refused[Path(path)] = reason
    return FolderFiles(tuple(sorted(files)), dict(sorted(refused.items())))


def files_below(folder: Path) -> list[Path]:
    """Return the regular files below a folder, relative to it and sorted, without those that are refused. Raises OSError."""
    return list(folder_files(folder).files)


def open_plain(path: Path, within: Path | None = None) -> BinaryIO:
    """Open a regular file to read, whatever it is replaced with meanwhile. Never waits for a named pipe.

    `within` is a folder with the file: nothing outside of it is opened, not even through links.
    Raises UnsafeFile, OSError.
    """
    descriptor = _open_within(path, within) if within is not None else os.open(path, _FLAGS)
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_unlinked(root: Path, parts: tuple[str, ...]) -> BinaryIO:
    """Open the regular file `root/PART/...` to read, through no link below `root`, whatever a part is replaced with meanwhile.

    Raises UnsafeFile for a link or a part such as `..`, OSError.
    """
    path = root.joinpath(*parts) if all(parts) else root
    if not parts or any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise UnsafeFile(f"{'/'.join(parts)[:200]!r} is not the path of a file inside {root}")
    try:
        descriptor = _open_below(os.path.realpath(root), parts)
    except OSError as error:
        if error.errno == errno.ENOTDIR and any(root.joinpath(*parts[:count]).is_symlink() for count in range(1, len(parts))):
            raise UnsafeFile(f"{path} is below a link") from error
        if error.errno == errno.ELOOP:
            raise UnsafeFile(f"{path} is a link") from error
        if error.errno == errno.ENXIO:  # a socket
            raise UnsafeFile(f"{path} is not a regular file") from error
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: Path, limit: int, within: Path | None = None) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes. Raises UnsafeFile, also for a larger file, and OSError."""
    with open_plain(path, within) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UnsafeFile(f"{path} is larger than {limit} bytes")
    return content


def _open_within(path: Path, within: Path) -> int:
    """Open by folder descriptors and without following links, so that no link that appears meanwhile leads out."""
    real = os.path.realpath(within)
    with contextlib.suppress(OSError, ValueError):  # a link, or a path that is spelled another way
        return _open_below(real, path.relative_to(within).parts)
    boundary, target = _boundary(within), Path(os.path.realpath(path))
    if not target.is_relative_to(boundary) or target == boundary:
        raise UnsafeFile(f"{path} is a link to {target}, outside of {within}")
    try:
        return _open_below(str(boundary), target.relative_to(boundary).parts)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFile(f"{path} has just been replaced by a link") from error
        if error.errno == errno.ENXIO:  # a socket
            raise UnsafeFile(f"{path} is not a regular file") from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def _open_below(folder: str, parts: tuple[str, ...]) -> int:
    if ".." in parts or not parts:
        raise ValueError(parts)
    directory = os.open(folder, _FOLDER_FLAGS)
    try:
        for name in parts[:-1]:
            inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        return os.open(parts[-1], _FLAGS | os.O_NOFOLLOW, dir_fd=directory)
    finally:
        os.close(directory)


def _refusal(path: Path, boundary: Path) -> str | None:
    """Return why a file is refused, None if it is not, and an empty string if it has just been removed."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode):
            return None
        if not stat.S_ISLNK(mode):
            return _kind(mode)
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(boundary):
            return f"a link to {real}, outside of the folder"
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "a link to a file that does not exist" if os.path.islink(path) else ""
    except (OSError, RuntimeError):  # circular links
        return "a link that leads nowhere"
    return None if stat.S_ISREG(mode) else f"a link to {_kind(mode)}"


def _require_regular(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise UnsafeFile(f"{path} is {_kind(mode)}, not a regular file")


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def _boundary(folder: Path) -> Path:
    """Return the resolved folder that links may not leave: the folder itself, or the repository in the hub's cache around it.

    A cached snapshot consists of links: `models--ORG--NAME/snapshots/COMMIT/FILE` to `models--ORG--NAME/blobs/DIGEST`.
    """
    real = Path(os.path.realpath(folder))
    repository = real.parent.parent
    is_snapshot = real.parent.name == "snapshots" and (repository / "blobs").is_dir()
    return repository if is_snapshot else real


def no_progress(_bytes: int) -> None:
    """The callback for callers that show no progress."""


def file_digest(path: Path, on_progress: ProgressCallback = no_progress, *, within: Path | None = None) -> str:
    """Return the hexadecimal SHA-256 of a regular file; `within` as for `open_plain`. Raises UnsafeFile, OSError."""
    digest = hashlib.sha256()
    with open_plain(path, within) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            on_progress(len(chunk))
    return digest.hexdigest()
