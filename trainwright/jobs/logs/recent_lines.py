"""Keeps the last lines that were read of each pod's log while it is followed: the log is lost with an evicted or preempted pod."""

from __future__ import annotations

import threading
from collections import deque

from trainwright.jobs.logs.log_excerpt import LOG_LINES, final_state, shortened

_MAX_PODS = 64
"""Of more pods, those whose logs have begun last are remembered."""


class RecentLines:
    """The last lines by the UID of the pod. Thread-safe."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}
        self._lock = threading.Lock()

    def add(self, uid: str, text: str) -> None:
        """Add the next line of a pod."""
        line = shortened(final_state(text))
        with self._lock:
            if uid not in self._lines:
                for oldest in list(self._lines)[: len(self._lines) + 1 - _MAX_PODS]:
                    del self._lines[oldest]
                self._lines[uid] = deque(maxlen=2 * LOG_LINES)
            self._lines[uid].append(line)

    def lines(self) -> dict[str, list[str]]:
        """Return the last lines of each pod."""
        with self._lock:
            return {uid: list(lines) for uid, lines in self._lines.items()}
