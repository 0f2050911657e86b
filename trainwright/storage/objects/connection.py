"""The connection to one bucket: it retries what an outage breaks, renews credentials that expire, and remembers capabilities.

This is the one place that retries: the clients below it send each request once. Only the parts of a large upload are retried by
obstore, for no longer than the connection waits out an outage, since a file that is sent again begins with its first byte.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trainwright.backoff import Backoff, retry
from trainwright.storage.errors import ExpiredCredentials, StorageError, Transient
from trainwright.storage.store import Capabilities
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
FIRST_CONTACT_SECONDS = 5.0
"""For a store that has not answered yet: its address may be wrong."""
_STEP_SECONDS = 60.0
"""The same in a step of a run."""
OUTAGE_SECONDS = 600.0
"""For a store that has answered: how long an outage, since the last success, is waited out."""
_REFRESH_SECONDS = 60.0
"""How long renewed credentials are waited for."""
_BACKOFF = Backoff(0.2, 15.0)
Result = TypeVar("Result")
Open = Callable[[float, bool], Any]
"""Opens a store of obstore that retries a request for so many seconds (0: not at all), and sends checksums or not."""


class _Patience:
    """How many steps of runs are being done in this process, whose threads all wait longer then."""

    steps = 0


@contextmanager
def waiting_as_a_step() -> Iterator[None]:
    """Wait as long for a store that has not answered yet as for such a cluster: a step may come after a long training."""
    _Patience.steps += 1
    try:
        yield
    finally:
        _Patience.steps -= 1


def _first_contact_seconds() -> float:
    return max(_STEP_SECONDS, FIRST_CONTACT_SECONDS) if _Patience.steps else FIRST_CONTACT_SECONDS


class ObjectConnection:
    """Shared by all stores below one bucket, and by the threads of a transfer. `name` identifies the endpoint and the bucket."""

    def __init__(
        self,
        name: str,
        open_bucket: Open,
        *,
        first_seconds: float | None = None,
        outage_seconds: float | None = None,
    ):
        self.name = name
        self._open = open_bucket
        self._given_first_seconds = first_seconds
        self._outage_seconds = OUTAGE_SECONDS if outage_seconds is None else outage_seconds
        self._lock = threading.Lock()
        self._succeeded_at: float | None = None
        self.sends_checksums = True
        self._reopen()
        self._capabilities: Capabilities | None = None

    @property
    def _first_seconds(self) -> float:
        return _first_contact_seconds() if self._given_first_seconds is None else self._given_first_seconds

    @property
    def bucket(self) -> Any:
        """The store of obstore, which sends each request once: for actions of `retry`."""
        return self._bucket

    @property
    def parts_bucket(self) -> Any:
        """The store of obstore for uploads in parts, each of which it retries."""
        return self._parts_bucket

    def capabilities(self, find_out: Callable[[], Capabilities]) -> Capabilities:
        """Return what the store can do; `find_out` is called once."""
        if self._capabilities is None:
            self._capabilities = find_out()
            log.info("event=store_capabilities store=%s capabilities=%s", self.name, self._capabilities)
        return self._capabilities

    def note_success(self) -> None:
        """The store has answered: from now on an outage is waited out."""
        is_first = self._succeeded_at is None
        self._succeeded_at = time.monotonic()
        if is_first:
            self._reopen()

    def send_no_checksums(self) -> None:
        """For a store that refuses uploads with a checksum."""
        self.sends_checksums = False
        self._reopen()

    def retry(self, action: Callable[[], Result], uri: StorageUri) -> Result:
        """Return the result of `action`, which is repeated after a Transient error and after credentials have expired.

        It must be safe to repeat, also if it had succeeded and only its answer was lost.
        """
        started = time.monotonic()

        def pause_after(error: StorageError, failures: int) -> float:
            pause, since = _BACKOFF.pause(failures), max(started, self._succeeded_at or 0.0)
            if time.monotonic() + pause > since + self._budget(error):
                raise error
            log.warning("event=transfer_retry uri=%s pause=%.1f reason=%r", uri, pause, str(error))
            if isinstance(error, ExpiredCredentials):
                self._reopen()
            return pause

        result = retry(action, (Transient, ExpiredCredentials), pause_after)
        self.note_success()
        return result

    def _budget(self, error: Exception) -> float:
        if isinstance(error, ExpiredCredentials):
            return min(_REFRESH_SECONDS, self._outage_seconds)
        return self._first_seconds if self._succeeded_at is None else self._outage_seconds

    def _reopen(self) -> None:
        """Open the bucket with the present settings, and with new credentials if a profile or a token file has them."""
        with self._lock:
            seconds = self._first_seconds if self._succeeded_at is None else self._outage_seconds
            self._bucket: Any = self._open(0.0, self.sends_checksums)
            self._parts_bucket: Any = self._open(seconds, self.sends_checksums)
