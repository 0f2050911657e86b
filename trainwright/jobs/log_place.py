"""How far a log has been read, by the times that the server gives its lines: what a new connection asks for, and what it repeats.

A server heeds whole seconds only, and may send again all that it has: each line is taken once. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_SECOND = 1_000_000_000
_SLACK = 1
"""Seconds before the last line that are asked for again: lines of two streams may be out of order by some moments."""


def split_stamp(line: bytes) -> tuple[int | None, bytes, bytes]:
    """`(nanoseconds since the epoch, stamp, text)` of a line with its time; None and no stamp where it has none."""
    match = _STAMP.match(line)
    if match is None:
        return None, b"", line
    try:
        second = _epoch(match[1] + match[3])
    except ValueError:
        return None, b"", line
    return second * _SECOND + int((match[2] or b"0").ljust(9, b"0")), line[: match.end() - 1], line[match.end() :]


@lru_cache(maxsize=64)
def _epoch(stamp: bytes) -> int:
    return int(datetime.fromisoformat(stamp.decode()).timestamp())


_SET_BACK = 10
"""Seconds: a line that is older than the last by more is of a clock that was set back, and time counts from there."""


class Place:
    """The place in one log. Holds the times of the last two seconds of lines, and no line."""

    def __init__(self, since: str = "", *, tailed: bool = False):
        self._first_since = since
        self._tailed = tailed
        """Whether the first connection began in the midst of the log: what stands before its first line was not wanted."""
        self._first: int | None = None
        self._recent: dict[int, Counter[int]] = {}
        self._repeats: Counter[int] = Counter()
        self._floor: int | None = None
        self._latest: int | None = None
        self._took = True

    @property
    def begun(self) -> bool:
        """Whether a line has been taken whose time is known."""
        return self._latest is not None

    def since(self) -> str:
        """The time from which a connection asks for lines; empty for all."""
        if self._latest is None:
            return self._first_since
        return datetime.fromtimestamp(self._latest - _SLACK, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def connected(self) -> None:
        """A connection begins with what `since` asked for: what was taken of that comes again."""
        self._repeats = Counter()
        for stamps in self._recent.values():
            self._repeats.update(stamps)
        self._floor = None if self._latest is None else (self._latest - _SLACK) * _SECOND

    def takes(self, stamp: int | None) -> bool:
        """Whether the next line of the connection is new. One without a time belongs to the line before."""
        if stamp is not None:
            self._took = self._is_new(stamp)
            if self._took:
                self._remember(stamp)
        return self._took

    def _is_new(self, stamp: int) -> bool:
        if self._repeats[stamp] > 0:
            self._repeats[stamp] -= 1
            return False
        if self._floor is not None and stamp < self._floor:  # it sends what it was not asked for
            return False
        if self._floor is not None and self._tailed and self._first is not None and stamp < self._first:
            return False
        self._floor = None  # beyond the repeats: a clock that is set back from here on loses nothing
        return True

    def _remember(self, stamp: int) -> None:
        second = stamp // _SECOND
        self._first = stamp if self._first is None else self._first
        self._recent.setdefault(second, Counter())[stamp] += 1
        if self._latest is None or second > self._latest or second < self._latest - _SET_BACK:
            self._latest = second
            self._recent = {kept: stamps for kept, stamps in self._recent.items() if second - _SLACK <= kept <= second}
