"""Tells whether the threads that everybody depends on still turn: a cluster with a dead or stuck one is deaf, and must not say ok."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STUCK_SECONDS = 60.0
"""A piece of work that takes longer does not end by itself: pieces take milliseconds."""


class LifeSign:
    """Of one thread. Its work is done in `turn`; waiting for work is not."""

    def __init__(self, thread: threading.Thread, monotonic: Callable[[], float] = time.monotonic):
        self._thread, self._monotonic = thread, monotonic
        self._since: float | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Do a piece of work. Turns of one sign do not overlap: if several threads take them, they hold a lock."""
        self._since = self._monotonic()
        try:
            yield
        finally:
            self._since = None

    def problems(self) -> list[str]:
        """What is wrong: that the thread does not run, or that it does not get done with a piece of work."""
        name, since = self._thread.name, self._since
        if not self._thread.is_alive():
            return [f"thread {name} {'has ended' if self._thread.ident is not None else 'has not started'}"]
        if since is not None and self._monotonic() - since > STUCK_SECONDS:
            return [f"thread {name} has been at one piece of work for more than {STUCK_SECONDS:.0f} s"]
        return []
