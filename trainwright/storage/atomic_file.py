"""Writes files and folders so that a reader, or a crash, never meets half of one.

A single file is written to a temporary one in the same folder, synced to disk, then renamed to the target. Many new files are
synced together: the first sync commits the file system's journal for all of them, so the others cost little. A folder is exchanged
for another without a moment in which there is none, where the platform can exchange two names.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from trainwright.flock import LocksNotSupported, lock_descriptor, try_lock
from trainwright.storage.errors import AlreadyExists
from trainwright.storage.parallel import for_each

_TEMPORARY = f".{'[0-9a-f]' * 16}.*.part"
_cleared: set[str] = set()
"""Folders where this process has removed what killed processes had left: to look before every file is quadratic."""
_AT_ONCE = 8
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
"""Linux: renameat2(2)."""
_RENAME_SWAP = 2
"""macOS: renamex_np(2)."""
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextlib.contextmanager
def atomic_write(target: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces `target` when the block succeeds, and is removed when it fails. Raises OSError."""
    with _temporary_file(target) as (temporary, file):
        yield file
        _make_durable(file)
        os.replace(temporary, target)
        sync_folder(target.parent)


def create_atomically(target: Path, content: bytes) -> None:
    """Create a file by hard-linking a temporary one to its name, which fails if the name exists.

    Of concurrent writers exactly one succeeds. Raises AlreadyExists, OSError.
    """
    with _temporary_file(target) as (temporary, file):
        file.write(content)
        _make_durable(file)
        try:
            os.link(temporary, target)
        except FileExistsError as error:
            raise AlreadyExists(f"{target} exists") from error
        except OSError:  # no hard links (SMB, object-store mounts): still create-only, but not atomic if the process is killed
            _create_in_place(target, content)
        temporary.unlink()
        sync_folder(target.parent)


@contextlib.contextmanager
def _temporary_file(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a new file in the folder of `target`, locked while in use. Removes temporary files of killed processes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear(target.parent)
    # A hash, because the target's name may already have the maximum length.
    prefix = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}."
    descriptor, temporary = _locked_file(target.parent, prefix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            yield temporary, file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _locked_file(folder: Path, prefix: str) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=".part")
        with contextlib.suppress(LocksNotSupported):
            lock_descriptor(descriptor)
        if os.path.exists(name):  # otherwise another process removed it as abandoned before it was locked
            return descriptor, Path(name)
        os.close(descriptor)


def _clear(folder: Path) -> None:
    if (name := str(folder)) in _cleared:  # once per process: a scan for each file would be slow in large folders
        return
    for left in folder.glob(_TEMPORARY):
        with contextlib.suppress(OSError):  # it has been renamed or removed, or the file system has no locks
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if try_lock(descriptor):
                    os.unlink(left)
            finally:
                os.close(descriptor)
    _cleared.add(name)


def _create_in_place(target: Path, content: bytes) -> None:
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError as error:
        raise AlreadyExists(f"{target} exists") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            _make_durable(file)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_files(files: Iterable[Path]) -> None:
    """Sync files and the folders that they are in to the disk. Raises OSError."""
    paths = list(files)
    for_each(paths, _sync_file, at_once=_AT_ONCE)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make directory entries durable. Some network file systems cannot sync folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two existing files or folders of one file system atomically.

    Returns False, and has done nothing, if the system or the file system cannot do it. Raises OSError.
    """
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        if not hasattr(library, "renamex_np"):
            return False
        failed = library.renamex_np(*names, ctypes.c_uint(_RENAME_SWAP))
    else:
        if not hasattr(library, "renameat2"):
            return False
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:  # by this file system, or this kernel
        return False
    raise OSError(number, os.strerror(number), str(second))
