"""The parts of a file that is uploaded, and the progress of an upload that may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from trainwright.storage.checksums import Checksums
from trainwright.storage.plain_files import ProgressCallback
from trainwright.storage.transfer import chunks_of


class CountedOnce:
    """Reports the progress of an upload that may be repeated from its beginning."""

    def __init__(self, on_progress: ProgressCallback):
        self._on_progress = on_progress
        self._reported = self._sent = 0

    def restart(self) -> None:
        self._sent = 0

    def add(self, count: int) -> None:
        self._sent += count
        new = max(0, self._sent - self._reported)
        self._reported += new
        self._on_progress(new)


def read_parts(file: BinaryIO, part: int, seen: Checksums, on_progress: ProgressCallback) -> Iterator[bytes]:
    """Yield the contents in parts of `part` bytes, each added to `seen`, and reported when the next one is asked for."""
    for chunk in chunks_of(file, part):
        seen.update(chunk)
        yield chunk
        on_progress(len(chunk))
