"""Position in a log, by the timestamps of its lines: what a new connection requests, and which lines it repeats. Pure.

The kubelet honours only whole seconds of `sinceTime`, and may send the whole log again; each line is accepted once.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache

_STAMP = re.compile(rb"((?:19[7-9]|2\d\d)\d-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_SECOND = 1_000_000_000
_SLACK = 1
"""Seconds before the last line that are requested again: lines of stdout and stderr may be slightly out of order."""


def split_stamp(line: bytes) -> tuple[int | None, bytes, bytes]:
    """Split a line into `(nanoseconds since the epoch, timestamp, text)`; `(None, b"", line)` if it has no timestamp."""
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


def _whole_second(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_SET_BACK = 10
"""Seconds: a line older than the last one by more than this means that the clock was set back; the position follows it."""


class LogCursor:
    """Position in one log. Stores the timestamps of the last two seconds of lines, but no lines."""

    def __init__(self, since: str = "", *, tailed: bool = False, after: str = ""):
        """`since` and `after` are RFC 3339 times to begin at; a line of the time `after` has been shown by somebody else."""
        self._shown, _, _ = split_stamp(f"{after} ".encode())
        self._first_since = since if self._shown is None else _whole_second(self._shown // _SECOND)
        self._tailed = tailed
        """Whether the first connection requested only a tail: lines before its first one are skipped."""
        self._first: int | None = None
        self._recent: dict[int, Counter[int]] = {}
        self._repeats: Counter[int] = Counter()
        self._floor: int | None = None
        self._latest: int | None = None
        self._accepted = True
        self._repeated = False

    @property
    def has_position(self) -> bool:
        """Whether a line with a timestamp has been accepted."""
        return self._latest is not None

    @property
    def is_beyond(self) -> bool:
        """Whether the connection has begun behind the position: it has repeated no line, although the last one was requested."""
        return (self._latest is not None or self._shown is not None) and not self._repeated

    def is_shown(self, stamp: int) -> bool:
        """Whether a line of this time has been shown by somebody else."""
        return self._shown is not None and stamp <= self._shown

    def since(self) -> str:
        """Return the `sinceTime` for the next connection; empty for the whole log."""
        if self._latest is None:
            return self._first_since
        return _whole_second(self._latest - _SLACK)

    def start_connection(self) -> None:
        """Prepare for a connection opened with `since`: accepted lines from that time on will be repeated."""
        self._repeats, self._repeated = Counter(), False
        for stamps in self._recent.values():
            self._repeats.update(stamps)
        self._floor = None if self._latest is None else (self._latest - _SLACK) * _SECOND

    def accept(self, stamp: int | None) -> bool:
        """Record the next line of the connection; returns whether it is new. A line without a timestamp continues the previous one."""
        if stamp is not None:
            self._accepted = self._is_new(stamp)
            self._repeated = self._repeated or not self._accepted
            if self._accepted:
                self._remember(stamp)
        return self._accepted

    def _is_new(self, stamp: int) -> bool:
        if self._repeats[stamp] > 0:
            self._repeats[stamp] -= 1
            return False
        if self._floor is not None and stamp < self._floor:  # the server ignored sinceTime
            return False
        if self._floor is not None and self._tailed and self._first is not None and stamp < self._first:
            return False
        is_at_start = self._floor is not None or self._latest is None  # later a clock may be set back
        if self.is_shown(stamp) and is_at_start:
            return False
        self._floor = None  # past the repeated lines: if the clock is set back from here on, no line is lost
        return True

    def _remember(self, stamp: int) -> None:
        second = stamp // _SECOND
        self._first = stamp if self._first is None else self._first
        self._recent.setdefault(second, Counter())[stamp] += 1
        if self._latest is None or second > self._latest or second < self._latest - _SET_BACK:
            self._latest = second
            self._recent = {kept: stamps for kept, stamps in self._recent.items() if second - _SLACK <= kept <= second}
