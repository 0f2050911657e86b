"""SHA-256 of files and of folders; one pass, bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

CHUNK = 4 * 1024 * 1024
Advance = Callable[[int], None]
"""Told of the bytes that have been done since the last call."""


def silent(_bytes: int) -> None:
    """For callers that show no progress."""


def file_digest(path: Path, advance: Advance = silent) -> str:
    """Hexadecimal SHA-256 of a file's contents. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()


def files_below(folder: Path) -> list[Path]:
    """All regular files below a folder, relative to it, sorted; links are followed only to files. Raises OSError."""
    found = []
    for place, _, names in os.walk(folder, onerror=_raise):
        found += [path.relative_to(folder) for name in names if (path := Path(place, name)).is_file()]
    return sorted(found)


def _raise(error: OSError) -> None:
    """A folder that cannot be read is no empty folder."""
    raise error
