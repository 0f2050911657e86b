"""Makes many new files durable at once: syncing each as it is written would cost a disk flush per file.

The first sync commits the file system's journal for all of them, so the others cost little.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from trainwright.storage.parallel import for_each

_AT_ONCE = 8


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
