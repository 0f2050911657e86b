"""Locks of open files (flock) for mutual exclusion between processes. The kernel releases them when the holder exits or is killed."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_HELD_ELSEWHERE = (errno.EWOULDBLOCK, errno.EACCES)


class LocksNotSupported(OSError):
    """The file system does not support locks (some object-store mounts)."""


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file. Whoever tries to lock it at this moment may fail.

    Raises LocksNotSupported, OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting. Returns False if it is held elsewhere. Raises LocksNotSupported, OSError."""
    try:
        _flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_ELSEWHERE:
            return False
        raise
    return True


def lock_descriptor(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file, waiting without a limit; for locks that are held only briefly. Raises LocksNotSupported, OSError."""
    _flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def _flock(descriptor: int, operation: int) -> None:
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
            raise LocksNotSupported(error.errno, error.strerror) from error
        raise
