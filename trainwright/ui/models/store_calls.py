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
        self._running: dict[str, list[float]] = {}
        """By place: when each call began, by the monotonic clock."""

    def call(self, place: str, action: Callable[[], Result]) -> Result:
        """Return what `action` returns; `place` names its store. Raises SlowStore, and what `action` raises."""
        began = time.monotonic()
        self._enter(place, began)
        future: Future[Result] = Future()
        thread = threading.Thread(target=self._run, args=(place, began, action, future), name="page-store", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._leave(place, began)
            raise SlowStore(f"{place}: this server has no thread left; try again") from error
        try:
            return future.result(timeout=max(0.0, began + self._seconds - time.monotonic()))
        except FutureTimeout:
            if future.done():  # the action itself has raised a TimeoutError
                raise
            raise SlowStore(f"{place} has not answered within {self._seconds:g} s; try again, or check the store") from None

    def _run(self, place: str, began: float, action: Callable[[], Result], future: Future[Result]) -> None:
        try:
            result = action()
        except BaseException as error:
            self._leave(place, began)
            future.set_exception(error)
        else:
            self._leave(place, began)
            future.set_result(result)

    def _enter(self, place: str, began: float) -> None:
        """Wait for one of the calls that a store may have at once; not for a store of which all hang."""
        deadline = began + self._seconds
        with self._free:
            while not self._is_free(place):
                running, now = self._running.get(place, []), time.monotonic()
                ends = [each + self._seconds for each in running]
                if now >= deadline or (len(running) >= self._at_once and now >= max(ends)):
                    raise SlowStore(f"{place}: {len(running)} earlier requests have not been answered; try again later")
                self._free.wait(timeout=min(each for each in (deadline, *ends) if each > now) - now)
            self._running.setdefault(place, []).append(began)

    def _is_free(self, place: str) -> bool:
        running = sum(map(len, self._running.values()))
        return len(self._running.get(place, [])) < self._at_once and running < _AT_ONCE_IN_ALL

    def _leave(self, place: str, began: float) -> None:
        with self._free:
            self._running[place].remove(began)
            if not self._running[place]:
                del self._running[place]
            self._free.notify_all()


def place_of(uri: StorageUri) -> str:
    """Return the store of a URI: its bucket, or the local files."""
    return "file://" if uri.scheme == "file" else f"{uri.scheme}://{uri.bucket}"
