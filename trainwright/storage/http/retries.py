"""How long a download retries: briefly until the server has answered once, then as long as bytes arrive now and then.

One budget is shared by all requests of a download, so that many files do not multiply the wait.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trainwright.backoff import Backoff, retry
from trainwright.storage.errors import StorageError, Unreachable
from trainwright.storage.http.errors import Cancelled, HttpError, is_transient

T = TypeVar("T")
log = logging.getLogger(__name__)
_BETWEEN_LINES = 10.0
"""Seconds between two log lines about retries, and until the first one about a server from which nothing arrives."""


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds until the first answer, and without progress after it; the pauses between attempts."""

    first_contact: float = 30.0
    without_progress: float = 600.0
    backoff: Backoff = Backoff(0.5, 30.0)


class Retries:
    """The budget of one download. Thread-safe."""

    def __init__(
        self,
        policy: RetryPolicy = RetryPolicy(),
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ):
        self._policy, self._clock = policy, clock
        self._cancelled = threading.Event()
        self._sleep = sleep or self._cancelled.wait
        self._since, self._has_contact = clock(), False
        self._next_line, self._next_silence = self._since, self._since + _BETWEEN_LINES

    def progress(self) -> None:
        """Note that data has arrived."""
        self._has_contact, self._since = True, self._clock()
        self._next_silence = self._since + _BETWEEN_LINES

    def cancel(self) -> None:
        """End all pauses, and refuse further ones with Cancelled."""
        self._cancelled.set()

    def pause(self, error: StorageError, attempt: int) -> None:
        """Wait before attempt number `attempt` + 1. Raises `error` if it is permanent or the budget is spent, Cancelled."""
        self._wait(self._pause_after(error, attempt + 1))

    def check(self, what: str) -> None:
        """Log now and then that nothing arrives. Raises Unreachable after the budget is spent: a library may wait longer."""
        silent = self._clock() - self._since
        if silent > self._limit:
            raise Unreachable(f"{what} cannot be reached: nothing has arrived for {silent:.0f} seconds")
        if self._clock() >= self._next_silence:
            self._next_silence = self._clock() + _BETWEEN_LINES
            log.warning("event=download_waits silent_s=%.0f of=%r", silent, what)

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of a request, repeated while its errors are transient and the budget lasts."""
        result = retry(request, StorageError, self._pause_after, self._wait)
        self.progress()
        return result

    def _pause_after(self, error: StorageError, failures: int) -> float:
        self._check_cancelled()
        if isinstance(error, HttpError) and not self._has_contact:
            self.progress()  # the server has answered, if only with an error
        if not is_transient(error):
            raise error
        seconds = self._policy.backoff.pause(failures)
        if isinstance(error, HttpError) and error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        if self._clock() + seconds > self._since + self._limit:
            raise error
        if self._clock() >= self._next_line:  # many files that fail together are one story
            self._next_line = self._clock() + _BETWEEN_LINES
            log.warning("event=download_retry pause_s=%.1f reason=%r", seconds, str(error))
        return seconds

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        self._check_cancelled()

    @property
    def _limit(self) -> float:
        return self._policy.without_progress if self._has_contact else self._policy.first_contact

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the download was stopped") from None
