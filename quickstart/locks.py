"""Two `make finetune` at once: one run belongs to one of them, and the cluster that they share stays until the last is done.

The locks are the operating system's and end with their process, so nothing stale can be left behind.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(path: Path) -> int | None:
    """A descriptor that holds the lock alone until it is closed, or None when somebody else has it."""
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def share(path: Path) -> int:
    """A descriptor that holds the lock beside others; waits for one that holds it alone, which is never long."""
    descriptor = _opened(path)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def last_of(path: Path, descriptor: int) -> int | None:
    """Give a share back; when it was the last one, the lock alone: whoever comes waits until it is closed."""
    os.close(descriptor)
    return lock(path)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
