"""One process at a time at an S3 store: an object that its holder rewrites every few seconds, and that others leave alone meanwhile.

Nobody's clock is compared with another's: who waits takes the lease when it has seen the same ETag for the whole term.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from trainwright.storage.errors import StorageError

log = logging.getLogger(__name__)
TERM = 30.0
"""Seconds that a lease outlives a holder that was killed."""
_PATIENCE = 600.0
_POLL = 0.5


class LeaseObject(Protocol):
    """The object that stands for a lease."""

    def put_if(self, content: bytes, etag: str | None) -> str | None:
        """Write it if it has this ETag (None: if it is not there); returns its new ETag, or None. Raises StorageError."""
        ...

    def look(self) -> tuple[bytes, str] | None:
        """Its content and its ETag; None where it is not."""
        ...

    def remove(self) -> None: ...


@contextlib.contextmanager
def leased(
    lease: LeaseObject,
    where: str,
    *,
    term: float = TERM,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """Hold the lease; others wait. Yields False where the store does not keep others out (it ignores preconditions).

    Raises StorageError after `patience` seconds, and at the end when the lease was lost meanwhile.
    """
    holder = _Holder(lease, term, clock)
    holder.acquire(where, patience, pause)
    if not holder.is_respected():
        lease.remove()
        yield False
        return
    stop = threading.Event()
    keeper = threading.Thread(target=holder.keep, args=(stop,), name="s3-lease", daemon=True)
    keeper.start()
    try:
        yield True
        if holder.is_lost():
            raise StorageError(
                f"{where}: the lock was lost while it was held (the process or the network stood still); try again"
            )
    finally:
        stop.set()
        keeper.join()
        if not holder.is_lost():
            with contextlib.suppress(StorageError):  # it ends by itself after its term
                lease.remove()


class _Holder:
    def __init__(self, lease: LeaseObject, term: float, clock: Callable[[], float]):
        self._lease, self._term, self._clock = lease, term, clock
        self._name = secrets.token_hex(8)
        self._beats = 0
        self._etag: str | None = None
        self._renewed = clock()
        self._taken = False

    def acquire(self, where: str, patience: float, pause: Callable[[float], None]) -> None:
        deadline = self._clock() + patience
        seen, since, waits = "", self._clock(), False
        while not self._write(None):
            there = self._lease.look()
            if there is not None and there[1] != seen:
                seen, since = there[1], self._clock()
                if not waits:
                    log.info("waiting for another process, or for the lock of one that was killed to run out uri=%s", where)
                waits = True
            elif there is not None and self._clock() - since > self._term and self._write(seen):
                log.warning("a lock that nobody renews was taken over uri=%s", where)
                return
            if self._clock() >= deadline:
                raise StorageError(f"{where}: another process has held this lock for {patience:.0f} s; try again when it is done")
            pause(_POLL)

    def is_respected(self) -> bool:
        """Whether the store refuses what it must, now that the object is there."""
        text = self._text()
        return self._lease.put_if(text, None) is None and self._lease.put_if(text, '"00000000000000000000000000000000"') is None

    def keep(self, stop: threading.Event) -> None:
        while not stop.wait(self._term / 4):
            try:
                if not self._write(self._etag):
                    self._taken = True
                    return
            except StorageError as error:
                log.debug("the lock could not be renewed error=%s", error)

    def is_lost(self) -> bool:
        return self._taken or self._clock() - self._renewed > self._term

    def _write(self, etag: str | None) -> bool:
        """Ours is now what is there. A refusal may be the answer to the second try of a request that had succeeded."""
        self._beats += 1
        before, text = self._clock(), self._text()
        new = self._lease.put_if(text, etag)
        if new is None:
            there = self._lease.look()
            new = there[1] if there is not None and there[0] == text else None
        if new is None:
            return False
        self._etag, self._renewed = new, before
        return True

    def _text(self) -> bytes:
        return f"{self._name} {self._beats}\n".encode()
