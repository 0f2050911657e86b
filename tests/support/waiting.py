"""Waiting for a condition, with a limit: what tests do instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], seconds: float = 30.0, what: str = "") -> T:
    """The first true answer of `look`; fails the test, saying what was seen last, when none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or look}; last seen: {seen!r}"
        time.sleep(0.02)
