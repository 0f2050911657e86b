"""Runs calls to stores with a time limit: a store that hangs must not take the threads of the page with it.

A thread cannot be stopped, so a call that is too slow goes on in the background, and only so many of them run per store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri

SECONDS = 15.0
_AT_ONCE, _AT_ONCE_IN_ALL = 4, 32
Result = TypeVar("Result")


class SlowStore(StorageError):
    """A store did not answer in time."""


class StoreCalls:
    """The calls of one server. Thread-safe."""

    def __init__(self, *, seconds: float = SECONDS, at_once: int = _AT_ONCE):
        self._seconds, self._at_once = seconds, at_once
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._running: dict[str, int] = {}

    def call(self, place: str, action: Callable[[], Result]) -> Result:
        """Return what `action` returns; `place` names its store. Raises SlowStore, and what `action` raises."""
        deadline = time.monotonic() + self._seconds
        self._enter(place, deadline)
        future: Future[Result] = Future()
        thread = threading.Thread(target=self._run, args=(place, action, future), name="page-store", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._leave(place)
            raise SlowStore(f"{place}: this server has no thread left; try again") from error
        try:
            return future.result(timeout=max(0.0, deadline - time.monotonic()))
        except FutureTimeout:
            if future.done():  # the action itself has raised a TimeoutError
                raise
            raise SlowStore(f"{place} has not answered within {self._seconds:g} s; try again, or check the store") from None

    def _run(self, place: str, action: Callable[[], Result], future: Future[Result]) -> None:
        try:
            result = action()
        except BaseException as error:
            self._leave(place)
            future.set_exception(error)
        else:
            self._leave(place)
            future.set_result(result)

    def _enter(self, place: str, deadline: float) -> None:
        def is_free() -> bool:
            return self._running.get(place, 0) < self._at_once and sum(self._running.values()) < _AT_ONCE_IN_ALL

        with self._free:
            if not self._free.wait_for(is_free, timeout=max(0.0, deadline - time.monotonic())):
                raise SlowStore(
                    f"{place}: {self._running.get(place, 0)} earlier requests have not been answered; try again later"
                )
            self._running[place] = self._running.get(place, 0) + 1

    def _leave(self, place: str) -> None:
        with self._free:
            self._running[place] -= 1
            if not self._running[place]:
                del self._running[place]
            self._free.notify_all()


def place_of(uri: StorageUri) -> str:
    """Return the store of a URI: its bucket, or the local files."""
    return "file://" if uri.scheme == "file" else f"{uri.scheme}://{uri.bucket}"
