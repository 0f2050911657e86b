"""Locks for concurrent `make finetune` commands: each run is used by one of them, and the last one stops the shared cluster.

They are file locks of the operating system and end with their process, so there are no stale locks.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(path: Path) -> int | None:
    """A descriptor that holds an exclusive lock until it is closed, or None if another process holds it."""
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def share(path: Path) -> int:
    """A descriptor that holds a shared lock. Waits for an exclusive lock, which is only held briefly."""
    descriptor = _opened(path)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def release_share(path: Path, descriptor: int) -> int | None:
    """Release a shared lock. If it was the last one, returns a descriptor with an exclusive lock; others wait until it is closed."""
    os.close(descriptor)
    return lock(path)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
