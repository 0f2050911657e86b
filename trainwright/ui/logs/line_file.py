"""Lines in an unnamed temporary file, with an index: any of millions of lines is read in a moment, in little memory.

The file has no name, is readable by nobody else, and vanishes with the process.
"""

from __future__ import annotations

import os
import tempfile
import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

STRIDE = 64
"""Lines between two entries of the index: 8 bytes of memory for each."""
_BLOCK_BYTES = 256 * 1024
_ON_DISK = "/var/tmp"  # noqa: S108  only for files without names


@dataclass(frozen=True)
class Block:
    """Consecutive lines: the number of the first one, and their text with line ends."""

    first: int
    count: int
    text: bytes


class LineFile:
    """Lines without line feeds; they are numbered from 0. One thread appends, any may read."""

    def __init__(self, folder: Path | None = None):
        self._file = tempfile.TemporaryFile(dir=folder or _folder(), buffering=0)  # noqa: SIM115  it lives as long as this object
        self._lock = threading.Lock()
        self._offsets = array("Q", [0])
        """Where every STRIDE-th line begins, up to the line that comes next."""
        self._count = self._size = 0
        self._is_closed = False

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def free_bytes(self) -> int:
        """Return the space that is left on its disk."""
        space = os.fstatvfs(self._file.fileno())
        return space.f_bavail * space.f_frsize

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines; without effect once closed. Raises OSError, for example without space: then none is appended."""
        if not lines:
            return
        data = memoryview(b"\n".join(lines) + b"\n")
        ends = list(accumulate((len(line) + 1 for line in lines), initial=self._size))
        with self._lock:
            if self._is_closed:
                return
            written = 0
            while written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], self._size + written)
            self._offsets.extend(ends[STRIDE - self._count % STRIDE :: STRIDE])
            self._size, self._count = ends[-1], self._count + len(lines)

    def read(self, start: int, end: int, *, max_bytes: int) -> list[bytes]:
        """Return the lines from `start` to before `end`: fewer at the end of the file, or beyond `max_bytes`, but at least one."""
        found: list[bytes] = []
        size = 0
        for block in self.blocks(start, end):
            for line in block.text.split(b"\n")[: block.count]:
                size += len(line)
                if found and size > max_bytes:
                    return found
                found.append(line)
        return found

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """Yield the lines from `start` to before `end` in blocks that are small enough to stop after any of them."""
        first, end = max(0, start), min(end, self._count)
        while first < end:
            block = self._block(first, end)
            if block.count == 0:
                return
            yield block
            first += block.count

    def blocks_backward(self, end: int) -> Iterator[Block]:
        """Yield the lines before `end` in blocks, the last one first."""
        end = min(end, self._count)
        while end > 0:
            last = index = (end - 1) // STRIDE
            while index > 0 and self._offsets[last] - self._offsets[index - 1] < _BLOCK_BYTES:
                index -= 1
            yield from reversed(list(self.blocks(index * STRIDE, end)))
            end = index * STRIDE

    def close(self) -> None:
        """Give the space back. Readers find no more lines."""
        with self._lock:
            self._is_closed = True
            self._count = 0
            os.ftruncate(self._file.fileno(), 0)

    def _block(self, first: int, end: int) -> Block:
        """Return lines from `first` on: up to `end` or an entry of the index, about _BLOCK_BYTES."""
        with self._lock:
            end = min(end, self._count)
            begin = first // STRIDE
            last = begin + 1
            while last * STRIDE < end and self._offsets[last] - self._offsets[begin] < _BLOCK_BYTES:
                last += 1
            start = self._offsets[begin]
            stop = self._offsets[last] if last < len(self._offsets) else self._size
        data = os.pread(self._file.fileno(), stop - start, start)
        until = min(end, last * STRIDE)
        position = _after_lines(data, first - begin * STRIDE)
        text = data[position:]
        count = text.count(b"\n")
        text = text[: _before_lines(text, count - (until - first))]
        return Block(first, min(count, until - first), text)


def _folder() -> str | None:
    """Return the folder for large temporary files: TMPDIR if set, else the one on a disk, since /tmp is often in memory."""
    chosen = os.environ.get("TMPDIR")
    return chosen if chosen or not os.access(_ON_DISK, os.W_OK) else _ON_DISK


def _after_lines(data: bytes, lines: int, position: int = 0) -> int:
    """Return the position behind so many lines."""
    for _ in range(lines):
        position = data.find(b"\n", position) + 1
        if position == 0:
            return len(data)
    return position


def _before_lines(text: bytes, lines: int) -> int:
    """Return the position before the last lines."""
    position = len(text)
    for _ in range(lines):
        position = text.rfind(b"\n", 0, position - 1) + 1
    return position
