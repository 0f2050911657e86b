"""Which rows are whose: ranges of rows for the workers of a cache and for the readers of a training. Pure.

Rows are numbered from 0 over the whole table, in the order of the workers. Source of the rules: Trainer's data cache.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_TICKET = struct.Struct("<QQ")
"""A pair of u64, as Rust's bincode 1 writes them."""


@dataclass(frozen=True)
class RowRange:
    """Rows from `start` to `end`, both included, so that it is never empty."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start + 1

    def overlap(self, other: RowRange) -> RowRange | None:
        """Return the rows of both, or None."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return RowRange(start, end) if start <= end else None

    def ticket(self) -> bytes:
        """Return the range as a Flight ticket."""
        return _TICKET.pack(self.start, self.end)

    @classmethod
    def from_ticket(cls, ticket: bytes) -> RowRange:
        """Parse a ticket. Raises ValueError."""
        if len(ticket) != _TICKET.size:
            raise ValueError(f"a ticket has {_TICKET.size} bytes, two numbers of 8, and this one has {len(ticket)}")
        start, end = _TICKET.unpack(ticket)
        if start > end:
            raise ValueError(f"a ticket for rows {start} to {end} has no rows")
        return cls(start, end)


@dataclass(frozen=True)
class DataFile:
    """A file of a table, the number of its rows, and the bytes that they take in memory at least, as far as known."""

    path: str
    rows: int
    least_bytes: int = 0


@dataclass(frozen=True)
class Share:
    """The files of one worker, in the order of their rows. `rows` is None without rows."""

    files: tuple[DataFile, ...]
    rows: RowRange | None


def slice_of(total: int, readers: int, rank: int) -> RowRange | None:
    """Return the rows of one of several readers; None if there are none left for it.

    Each has the same number, rounded up, so that the last ones have fewer. Raises ValueError for a rank that does not exist.
    """
    if readers < 1 or not 0 <= rank < readers:
        raise ValueError(f"there is no reader {rank} of {readers}")
    each = -(-total // readers)
    start, end = rank * each, min((rank + 1) * each, total) - 1
    return RowRange(start, end) if start <= end else None


def share_out(files: Iterable[DataFile], workers: int) -> list[Share]:
    """Give each file to the worker that has the fewest rows so far, the largest files first. Returns a share for each worker."""
    given: list[list[DataFile]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for file in sorted(files, key=lambda file: (-file.rows, file.path)):
        least = loads.index(min(loads))
        given[least].append(file)
        loads[least] += file.rows
    return [Share(tuple(theirs), rows) for theirs, rows in zip(given, _one_after_another(loads), strict=True)]


def _one_after_another(counts: Sequence[int]) -> list[RowRange | None]:
    ranges: list[RowRange | None] = []
    start = 0
    for count in counts:
        ranges.append(RowRange(start, start + count - 1) if count else None)
        start += count
    return ranges
