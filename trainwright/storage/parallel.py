"""Runs one action for many items, several at once: each transfer waits mostly for the network or the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from trainwright.storage.errors import StorageError
from trainwright.storage.plain_files import ProgressCallback

Item = TypeVar("Item")
Result = TypeVar("Result")


class TransferStopped(StorageError):
    """The transfer was stopped because another one failed. That one's error is raised."""


class Stop:
    """Tells running transfers to end. Their progress callback is where they notice."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def watch(self, on_progress: ProgressCallback) -> ProgressCallback:
        """Return a progress callback that raises TransferStopped after `set`."""

        def report(count: int) -> None:
            if self._event.is_set():
                raise TransferStopped("another transfer failed")
            on_progress(count)

        return report


def for_each(items: Sequence[Item], action: Callable[[Item], Result], *, at_once: int, stop: Stop | None = None) -> list[Result]:
    """Return the results in the order of `items`.

    After an error no further item is begun, and `stop` is set for those that run; then the first error is raised.
    """
    if len(items) <= 1 or at_once == 1:  # a pool would only cost a thread
        return [action(item) for item in items]
    failed = threading.Event()

    def act(item: Item) -> Result:
        if failed.is_set():
            raise TransferStopped("another transfer failed")
        try:
            return action(item)
        except BaseException:  # no further item is begun, also after an interrupt
            failed.set()
            raise

    with ThreadPoolExecutor(min(at_once, len(items)), thread_name_prefix="transfer") as pool:
        futures = [pool.submit(act, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if failed.is_set() or not all(future.done() for future in futures):
                failed.set()
                if stop is not None:
                    stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    errors = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, TransferStopped)), errors[0])
    return [future.result() for future in futures]
