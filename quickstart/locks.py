"""Locks for concurrent `make finetune` commands: each run is used by one of them, and the last one stops the shared cluster.

They are file locks of the operating system and end with their process, so there are no stale locks.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.storage.locks import lock_descriptor, try_lock


def lock(path: Path) -> int | None:
    """A descriptor that holds an exclusive lock until it is closed, or None if another process holds it."""
    descriptor = _opened(path)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def share(path: Path) -> int:
    """A descriptor that holds a shared lock. Waits for an exclusive lock, which is only held briefly."""
    descriptor = _opened(path)
    lock_descriptor(descriptor, shared=True)
    return descriptor


def release_share(path: Path, descriptor: int) -> int | None:
    """Release a shared lock. If it was the last one, returns a descriptor with an exclusive lock; others wait until it is closed."""
    os.close(descriptor)
    return lock(path)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
