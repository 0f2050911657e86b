"""Copying files on this machine: digested in the same pass, complete or absent at the target, with a word on full disks."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.digests import CHUNK, Advance, silent
from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.store import StoredFile
from trainwright.storage.whole_file import replacing

_HEADROOM = 16 * 1024 * 1024
"""Bytes that are left free: a disk filled to the last block breaks everything else too."""


def copy_file(source: Path, target: Path, advance: Advance = silent) -> StoredFile:
    """Copy one file; returns size and digest of what was read. Raises StorageError, NoSpace."""
    size, digest = 0, hashlib.sha256()
    with disk_errors(target), open(source, "rb") as reading, replacing(target) as writing:
        while chunk := reading.read(CHUNK):
            size += len(chunk)
            digest.update(chunk)
            writing.write(chunk)
            advance(len(chunk))
    return StoredFile(size, digest.hexdigest())


def write_bytes(target: Path, content: bytes) -> None:
    """Write a small file whole. Raises StorageError, NoSpace."""
    with disk_errors(target), replacing(target) as file:
        file.write(content)


def check_space(folder: Path, needed: int) -> None:
    """Raises NoSpace when `needed` bytes will not fit where `folder` is (or will be)."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if needed + _HEADROOM > free:
        raise NoSpace(f"{folder}: {_size(needed)} are needed and {_size(free)} are free; make room or choose another place")


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """OSError as StorageError that names the path; a full disk as NoSpace."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                f"{where}: the disk is full; make room and run the same command again, it goes on where it stopped"
            ) from error
        raise StorageError(f"{error.filename or where}: {error.strerror or error}") from error


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
