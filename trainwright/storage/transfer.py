"""Local file copies: atomic, with the digest computed in the same pass, and with clear errors for full disks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.atomic_file import atomic_write
from trainwright.storage.digests import CHUNK, ProgressCallback, no_progress
from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.plain_files import open_plain
from trainwright.storage.store import StoredFile

_HEADROOM = 16 * 1024 * 1024
"""Bytes to keep free: other programs fail on a completely full disk."""


def copy_file(
    source: Path, target: Path, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
) -> StoredFile:
    """Copy a regular file atomically; `within` as for `open_plain`. Returns size and digest of the data that was read.

    Raises StorageError, NoSpace.
    """
    size, digest = 0, hashlib.sha256()
    with disk_errors(target), open_plain(source, within) as reading, atomic_write(target) as writing:
        while chunk := reading.read(CHUNK):
            size += len(chunk)
            digest.update(chunk)
            writing.write(chunk)
            on_progress(len(chunk))
    return StoredFile(size, digest.hexdigest())


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
    """Convert OSError to a StorageError that names the path, and a full disk to NoSpace."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{where}: the disk is full; free up space and run the same command again to resume") from error
        raise StorageError(f"{error.filename or where}: {error.strerror or error}") from error


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
