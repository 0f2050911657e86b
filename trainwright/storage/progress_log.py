"""Progress of a transfer as log lines, for programs without a terminal: one now and then, however many files there are."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from trainwright.storage.plain_files import ProgressCallback

log = logging.getLogger(__name__)
_FIRST_INTERVAL, _LONGEST_INTERVAL = 10.0, 60.0
"""Seconds between two lines: at first, and after an hour or more."""
_WINDOW = 6
"""Lines that the rate is averaged over, so that a file that was there already does not count for long."""
_MB = 1_000_000


def log_progress(
    what: str, *, write: Callable[[str], object] = lambda line: log.info("%s", line), clock: Callable[[], float] = time.monotonic
) -> Callable[[int], ProgressCallback]:
    """Return a `start_progress` that writes bytes, total, MB/s and remaining seconds of `what`, by default to the log.

    A transfer of less than ten seconds writes nothing. Threads may call the progress callback.
    """

    def start(total: int) -> ProgressCallback:
        return _Lines(what, total, write, clock)

    return start


class _Lines:
    def __init__(self, what: str, total: int, write: Callable[[str], object], clock: Callable[[], float]):
        self._what, self._total, self._write, self._clock = what, total, write, clock
        self._lock = threading.Lock()
        self._done = 0
        self._began = clock()
        self._next = self._began + _FIRST_INTERVAL
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)], maxlen=_WINDOW)

    def __call__(self, count: int) -> None:
        with self._lock:
            self._add(count)

    def _add(self, count: int) -> None:
        self._done += count
        now = self._clock()
        if now < self._next:
            return
        self._next = now + min(_LONGEST_INTERVAL, max(_FIRST_INTERVAL, (now - self._began) / 60))
        since, before = self._seen[0]
        rate = max(0.0, (self._done - before) / (now - since)) if now > since else 0.0
        self._seen.append((now, self._done))
        remaining = f"{max(0, self._total - self._done) / rate:.0f}" if rate and self._total else "unknown"
        self._write(
            f"event=transfer_progress what={self._what} bytes={self._done} total={self._total} mb_per_s={rate / _MB:.1f} "
            f"remaining_s={remaining}"
        )
