"""Refuses a checkpoint that is still being written: another rank may add its files after the first one has written its last.

The check costs no time of its own: the checkpoint is looked at before its files are stored, and again before they are published.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import fingerprint

QUIET_SECONDS = 2.0
"""How long a checkpoint must not have changed."""
_OLD_SECONDS = 60.0
"""A checkpoint whose files are older is not waited for. Clocks of file servers may differ by seconds."""


class QuietCheck:
    """Looks at `folder` now, and again in `require`."""

    def __init__(
        self,
        folder: Path,
        seconds: float = QUIET_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._folder, self._clock, self._sleep = folder, clock, sleep
        self._before = fingerprint(folder)
        newest = max((changed / 1e9 for _, _, changed in self._before), default=0.0)
        self._until = clock() + (seconds if abs(time.time() - newest) < _OLD_SECONDS else 0.0)

    def require(self) -> None:
        """Raise CheckpointError if files were added or changed since. A checkpoint that was removed meanwhile is no longer written."""
        self._sleep(max(0.0, self._until - self._clock()))
        after = fingerprint(self._folder)
        if after and after != self._before:
            changed = sorted({path for path, _, _ in set(after) ^ set(self._before)})
            raise CheckpointError(
                f"{self._folder} is still being written ({changed[0]} changed); export it again when it is complete"
            )
