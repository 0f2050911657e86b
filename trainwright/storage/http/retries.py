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

from trainwright.backoff import Backoff
from trainwright.storage.errors import StorageError
from trainwright.storage.http.errors import Cancelled, HttpError, is_transient

T = TypeVar("T")
log = logging.getLogger(__name__)
_SLICE = 0.5
"""Seconds after which a pause looks whether it is still needed."""
_BETWEEN_LINES = 10.0
"""Seconds between two log lines about retries."""


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
        sleep: Callable[[float], None] | None = None,
    ):
        self._policy, self._clock = policy, clock
        self._cancelled = threading.Event()
        self._sleep = sleep or self._wait
        self._since, self._has_contact = clock(), False
        self._next_line = self._since

    def _wait(self, seconds: float) -> None:
        self._cancelled.wait(seconds)

    def progress(self) -> None:
        """Note that data has arrived."""
        self._has_contact, self._since = True, self._clock()

    def contact(self) -> None:
        """Note that the server has answered, if only with an error."""
        if not self._has_contact:
            self._has_contact, self._since = True, self._clock()

    def cancel(self) -> None:
        """End all pauses, and refuse further ones with Cancelled."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def pause(self, error: StorageError, attempt: int, *, is_stopped: Callable[[], bool] | None = None) -> None:
        """Wait before attempt number `attempt` + 1, no longer than until `is_stopped`.

        Raises `error` if it is permanent or the budget is spent, Cancelled.
        """
        if self.is_cancelled:
            raise Cancelled("the download was stopped") from None
        if isinstance(error, HttpError):
            self.contact()
        if not is_transient(error):
            raise error
        seconds = self._policy.backoff.pause(attempt + 1)
        if isinstance(error, HttpError) and error.retry_after is not None:
            seconds = max(seconds, error.retry_after)
        limit = self._policy.without_progress if self._has_contact else self._policy.first_contact
        if self._clock() + seconds > self._since + limit:
            raise error
        if self._may_log():
            log.warning("event=download_retry pause_s=%.1f reason=%r", seconds, str(error))
        while seconds > 0 and not self.is_cancelled and not (is_stopped and is_stopped()):
            length = seconds if is_stopped is None else min(seconds, _SLICE)
            self._sleep(length)
            seconds -= length
        if self.is_cancelled:
            raise Cancelled("the download was stopped") from None

    def _may_log(self) -> bool:
        """Whether the last line is old enough: many files that fail together are one story."""
        now = self._clock()
        if now < self._next_line:
            return False
        self._next_line = now + _BETWEEN_LINES
        return True

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of a request, repeated while its errors are transient and the budget lasts."""
        attempt = 0
        while True:
            try:
                result = request()
            except StorageError as error:
                self.pause(error, attempt)
                attempt += 1
            else:
                self.progress()
                return result
