"""One process at a time, and what a killed one left behind: locks on files that the kernel releases when their holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainwright.storage.errors import StorageError

_PATIENCE = 600.0
"""Seconds to wait for another holder: longer than an export of tens of gigabytes takes on a slow disk."""
_POLL = 0.1
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class NoLocks(OSError):
    """The file system has no locks (some object-store mounts)."""


@contextlib.contextmanager
def exclusive(
    path: Path,
    *,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock file `path`; whoever else asks for it waits, in this process or another. The file goes with its holder.

    Where the file system has no locks nobody waits. Raises StorageError after `patience` seconds, OSError.
    """
    deadline = clock() + patience
    try:
        while (descriptor := lock(path)) is None:
            if clock() >= deadline:
                raise StorageError(f"{path}: another process has held this lock for {patience:.0f} s; try again when it is done")
            pause(_POLL)
    except NoLocks:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def lock(path: Path) -> int | None:
    """Lock a file, made if need be; returns the descriptor to close, or None while another holds it. Raises NoLocks, OSError."""
    while True:
        # Writable for the group where the umask allows it: what one user's process leaves behind, another's has to lock.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            held = not try_lock(descriptor)
            gone = not held and not _is_still(path, descriptor)  # its last holder removed it between our open and our lock
        except BaseException:
            os.close(descriptor)
            raise
        if not held and not gone:
            return descriptor
        os.close(descriptor)
        if held:
            return None


def try_lock(descriptor: int) -> bool:
    """Lock an open file, if nobody holds it. Raises NoLocks, OSError."""
    try:
        _flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True


def hold(descriptor: int) -> None:
    """Lock an open file that others hold for a moment at most. Raises NoLocks, OSError."""
    _flock(descriptor, fcntl.LOCK_EX)


def _flock(descriptor: int, operation: int) -> None:
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
            raise NoLocks(error.errno, error.strerror) from error
        raise


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
