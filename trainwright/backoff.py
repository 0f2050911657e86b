"""The loop of attempts, and the pauses between them: each longer than the one before, up to a limit, and shortened by chance.

The chance keeps clients that have failed together from trying again together. What may be tried again, and for how long, differs from
use to use (a budget since the last success, Retry-After, credentials that are renewed), and stands there. `tenacity` would save the
ten lines of `retry`, none of those decisions, and adds 11 ms to an import.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
_MAX_EXPONENT = 64
"""Beyond it every pause is the longest; a larger power could be no float."""


@dataclass(frozen=True)
class Backoff:
    """`first` and `longest` pause in seconds. `jitter` is the share of a pause that chance may take away."""

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.5

    def seconds(self, failures: int) -> float:
        """Return the full pause after so many failures in a row, in seconds; 0 without a failure."""
        if failures <= 0:
            return 0.0
        return float(min(self.first * self.factor ** min(failures - 1, _MAX_EXPONENT), self.longest))

    def pause(self, failures: int) -> float:
        """Return the pause after so many failures in a row, in seconds, shortened by chance."""
        return self.seconds(failures) * random.uniform(1 - self.jitter, 1)

    def attempts(self, count: int, sleep: Callable[[float], object] | None = None) -> Iterator[bool]:
        """Yield for each of at most `count` attempts whether it is the last one, with a pause before all but the first."""
        for failures in range(count):
            if failures:
                (sleep or time.sleep)(self.pause(failures))
            yield failures == count - 1


def retry(
    action: Callable[[], T],
    errors: type[E] | tuple[type[E], ...],
    pause_after: Callable[[E, int], float],
    sleep: Callable[[float], object] | None = None,
) -> T:
    """Return the result of `action`, repeated after each of the `errors`.

    `pause_after` gets the error and the number of failures in a row; it returns the seconds until the next one, or raises the error.
    """
    failures = 0
    while True:
        try:
            return action()
        except errors as error:
            failures += 1
            seconds = pause_after(error, failures)
        (sleep or time.sleep)(seconds)
