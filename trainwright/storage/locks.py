"""Lock files for mutual exclusion between processes, beside what they protect, on volumes where others may write, too."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.flock import LocksNotSupported, try_lock
from trainwright.storage.errors import LockLost, StorageError, UnsafeFile

log = logging.getLogger(__name__)
_TIMEOUT_SECONDS = 600.0
"""Maximum wait for another holder: longer than an export of tens of gigabytes takes on a slow disk."""
_POLL = 0.1
_MAX_NAME = 255
"""Bytes of a file name on common file systems."""


@dataclass(frozen=True)
class HeldLock:
    """A lock file that is held, by its open descriptor; None where the file system has no locks."""

    path: Path
    descriptor: int | None

    def require(self) -> None:
        """Raise LockLost if the lock file was removed or replaced, so that another process may hold the new one."""
        if self.descriptor is not None and not _is_still(self.path, self.descriptor, None):
            raise LockLost(f"{self.path} was removed while the lock was held; try again")


def lock_path(target: Path) -> Path:
    """Return the lock file beside a file or folder, held while that is created, replaced or deleted."""
    name = f".{target.name}.lock"
    if len(os.fsencode(name)) > _MAX_NAME:
        name = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()}.lock"
    return target.with_name(name)


@contextlib.contextmanager
def file_lock(
    path: Path,
    *,
    timeout: float = _TIMEOUT_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[HeldLock]:
    """Hold the lock file `path`. Other callers, in this process or another, wait for it. It is removed on release.

    Without support for locks in the file system no caller waits. Raises StorageError after `timeout` seconds, OSError.
    """
    deadline, is_waiting = clock() + timeout, False
    try:
        while (descriptor := try_lock_file(path)) is None:
            if not is_waiting:
                log.info("event=waiting_for_lock path=%s", path)
            is_waiting = True
            if clock() >= deadline:
                raise StorageError(f"{path}: another process has held this lock for {timeout:.0f} s; try again later")
            sleep(_POLL)
    except LocksNotSupported:  # waiting would not help: the file system has no locks
        yield HeldLock(path, None)
        return
    try:
        yield HeldLock(path, descriptor)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def try_lock_file(path: Path, *, directory: int | None = None) -> int | None:
    """Lock a file, creating it if missing. Returns the descriptor to close, or None if it is held elsewhere.

    `directory` is the descriptor of an open folder that a relative `path` is in. A link is not followed: others may write to the
    folder, and a lock must not create or open a file elsewhere.
    Raises UnsafeFile for a link or a special file, LocksNotSupported, OSError.
    """
    while True:
        # Group-writable if the umask allows it: a process of another user must be able to lock a file that was left behind.
        descriptor = _open_lock(path, directory)
        try:
            is_held = not try_lock(descriptor)
            is_removed = not is_held and not _is_still(path, descriptor, directory)  # removed by its last holder
        except BaseException:
            os.close(descriptor)
            raise
        if not is_held and not is_removed:
            return descriptor
        os.close(descriptor)
        if is_held:  # a removed one is tried again under a new file
            return None


def _open_lock(path: Path, directory: int | None) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UnsafeFile(f"{path} is a link or not a regular file, so it cannot be locked; remove it") from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise UnsafeFile(f"{path} is not a regular file, so it cannot be locked; remove it")


def _is_still(path: Path, descriptor: int, directory: int | None) -> bool:
    try:
        return os.path.samestat(os.stat(path, dir_fd=directory, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:  # its last holder has removed it since it was opened
        return False
