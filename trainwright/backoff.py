"""The pauses between attempts: each longer than the one before, up to a limit, and shortened by chance.

The chance keeps clients that have failed together from trying again together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

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
