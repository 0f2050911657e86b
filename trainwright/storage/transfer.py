"""Local file copies: atomic, with the digest computed in the same pass, and with clear errors for full disks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainwright.storage.atomic_file import atomic_write
from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import NoSpace, NotPermitted, StorageError
from trainwright.storage.plain_files import CHUNK, ProgressCallback, no_progress, open_plain
from trainwright.storage.store import StoredFile

_HEADROOM = 16 * 1024 * 1024
"""Bytes to keep free: other programs fail on a completely full disk."""


def copy_file(
    source: Path, target: Path, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
) -> StoredFile:
    """Copy a regular file atomically; `within` as for `open_plain`. Returns size and checksums of the data that was read.

    Raises StorageError, NoSpace.
    """
    with disk_errors(target), open_plain(source, within) as reading, atomic_write(target) as writing:
        return _copy(reading, writing, on_progress)


def copy_new_file(
    source: Path, target: Path, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
) -> StoredFile:
    """Copy a regular file to a name that does not exist and that nobody reads yet; neither atomic nor synced to the disk.

    Returns size and checksums of the data that was read. Raises StorageError, NoSpace.
    """
    with disk_errors(target), open_plain(source, within) as reading, open_new(target) as writing:
        try:
            return _copy(reading, writing, on_progress)
        except BaseException:
            target.unlink()  # a part of it would take up room, perhaps the last
            raise


def open_new(target: Path) -> BinaryIO:
    """Create a file to write. Its folder is created if missing. Raises FileExistsError, OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(target, flags, 0o644)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, flags, 0o644)
    return os.fdopen(descriptor, "wb")


def chunks_of(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the contents in chunks of `size` bytes, the last one shorter. Raises OSError."""
    size = min(size, max(4096, os.fstat(file.fileno()).st_size))  # no large buffers for small files
    while chunk := file.read(size):
        yield chunk


def write_bytes(target: Path, content: bytes) -> None:
    """Write a small file atomically. Raises StorageError, NoSpace."""
    with disk_errors(target), atomic_write(target) as file:
        file.write(content)


def check_space(folder: Path, needed: int) -> None:
    """Raise NoSpace if `needed` bytes do not fit on the disk of `folder`, which need not exist yet."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if needed + _HEADROOM > free:
        raise NoSpace(f"{folder}: {_size(needed)} needed, {_size(free)} free; free up space or choose another folder")


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Convert OSError to a StorageError that names the path, a full disk to NoSpace, and a missing permission to NotPermitted."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{where}: the disk is full; free up space and run the same command again to resume") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            groups = ", ".join(map(str, sorted({os.getegid(), *os.getgroups()})))
            advice = "what shares a volume needs one group that may write (docs/runs.md, Pods of different users)"
            raise NotPermitted(
                f"{error.filename or where}: {error.strerror} (user {os.geteuid()}, groups {groups}); {advice}"
            ) from error
        raise StorageError(f"{error.filename or where}: {error.strerror or error}") from error


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _copy(reading: BinaryIO, writing: BinaryIO, on_progress: ProgressCallback) -> StoredFile:
    seen = Checksums()
    for chunk in chunks_of(reading, CHUNK):
        seen.update(chunk)
        writing.write(chunk)
        on_progress(len(chunk))
    return StoredFile(seen.size, seen.sha256, seen.crc64nvme)
