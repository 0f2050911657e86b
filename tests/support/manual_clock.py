"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """The time in seconds is `now`; sleeping moves it."""

    def __init__(self, now: float = 0.0):
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
