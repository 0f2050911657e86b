"""Waiting for a condition, with a limit: what tests do instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], seconds: float = 30.0, what: str = "", longest_pause: float = 0.5) -> T:
    """The first true answer of `look`; fails the test, saying what was seen last, when none comes in time.

    The longer it has waited, the longer are its pauses, up to `longest_pause` seconds: a look may cost a server more than what the
    test waits for does.
    """
    began = time.monotonic()
    while True:
        seen = look()
        if seen:
            return seen
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what or look}; last seen: {seen!r}"
        time.sleep(min(max(0.02, waited / 20), longest_pause))
