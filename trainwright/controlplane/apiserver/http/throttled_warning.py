"""Warnings that a client can cause as often as it likes, logged at intervals so that they do not fill the log."""

from __future__ import annotations

import logging
import time


class ThrottledWarning:
    """Logs at most one warning in `seconds`, with the number of those that were left out since."""

    def __init__(self, log: logging.Logger, seconds: float = 10.0):
        self._log, self._seconds = log, seconds
        self._next, self._omitted = 0.0, 0

    def __call__(self, message: str, *arguments: object) -> None:
        """Log `message`, formatted with the arguments, or count it."""
        now = time.monotonic()
        if now < self._next:
            self._omitted += 1
            return
        self._log.warning(f"{message} omitted=%d", *arguments, self._omitted)
        self._next, self._omitted = now + self._seconds, 0
