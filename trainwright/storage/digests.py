"""SHA-256 of files, computed in one pass with bounded memory, and lists of files below a folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

CHUNK = 4 * 1024 * 1024
ProgressCallback = Callable[[int], None]
"""Called with the number of bytes processed since the last call."""


def no_progress(_bytes: int) -> None:
    """The callback for callers that show no progress."""


def file_digest(path: Path, on_progress: ProgressCallback = no_progress) -> str:
    """Return the hexadecimal SHA-256 of a file. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            on_progress(len(chunk))
    return digest.hexdigest()


def files_below(folder: Path) -> list[Path]:
    """Return all regular files below a folder, relative to it, sorted. Only links to files are followed. Raises OSError."""
    found = []
    for parent, _, names in os.walk(folder, onerror=_raise):
        found += [path.relative_to(folder) for name in names if (path := Path(parent, name)).is_file()]
    return sorted(found)


def _raise(error: OSError) -> None:
    """`os.walk` ignores errors by default, which would make an unreadable folder look empty."""
    raise error
