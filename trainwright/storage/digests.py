"""SHA-256 of files, computed in one pass with bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from trainwright.storage.plain_files import open_plain

CHUNK = 4 * 1024 * 1024
ProgressCallback = Callable[[int], None]
"""Called with the number of bytes processed since the last call."""


def no_progress(_bytes: int) -> None:
    """The callback for callers that show no progress."""


def file_digest(path: Path, on_progress: ProgressCallback = no_progress, *, within: Path | None = None) -> str:
    """Return the hexadecimal SHA-256 of a regular file; `within` as for `open_plain`. Raises UnsafeFile, OSError."""
    digest = hashlib.sha256()
    with open_plain(path, within) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            on_progress(len(chunk))
    return digest.hexdigest()
