"""Turns SIGTERM and Ctrl-C into an event, and into one action that is taken at once.

A step of Kubeflow Pipelines is killed within a second of its signal. The handler only wakes a thread: a handler runs in the middle
of the main thread's work, which may hold the very locks that the event or a request needs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class StopEvent(threading.Event):
    """Set when the process is to end. `at_once` is called by the thread that sets it; it must not raise."""

    at_once: Callable[[], None] | None = None
    was_signalled = False
    """Set by the handler, which takes no lock; the event itself follows within milliseconds."""

    def is_set(self) -> bool:
        return self.was_signalled or super().is_set()

    def stop(self) -> None:
        """Set the event, and act."""
        self.set()
        if self.at_once is not None:
            self.at_once()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopEvent]:
    """Set the yielded event on SIGTERM and SIGINT. Outside the main thread signal handlers are not changed."""
    event = StopEvent()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wake(_number: int, _frame: FrameType | None) -> None:
        event.was_signalled = True
        with contextlib.suppress(BlockingIOError):  # full of earlier signals
            os.write(writer, b"\0")

    threading.Thread(target=_relay, args=(reader, event), name="stop-on-signals", daemon=True).start()
    previous = {number: signal.signal(number, wake) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(writer)


def _relay(reader: int, event: StopEvent) -> None:
    """Stop at the first signal; later ones change nothing. Ends when the other end is closed."""
    with open(reader, "rb", buffering=0) as pipe:
        if pipe.read(1):
            event.stop()
        while pipe.read(64):
            pass
