"""Refuses a checkpoint that is still being written: another rank may add its files after the first one has written its last.

A checkpoint that was just written is waited for before its files are stored, and looked at again before they are published.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import fingerprint

QUIET_SECONDS = 2.0
"""How long a checkpoint must not have changed."""
_LOOK_SECONDS = 0.1
_OLD_SECONDS = 60.0
"""A checkpoint whose files are older is not waited for. Clocks of file servers may differ by seconds."""


class QuietCheck:
    """Looks at `folder` now, and again in `settle` and `require`."""

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

    def settle(self, *, are_ranks_known: bool) -> None:
        """Wait until nothing has changed for the quiet time. Raise CheckpointError if something was added or changed.

        A checkpoint that is removed in that time may have been given another file after it was pinned. So that is refused, too,
        unless the number of ranks is known, which the check of the pinned files has counted.
        """
        while (left := self._until - self._clock()) > 0:
            self._sleep(min(_LOOK_SECONDS, left))
            if not self._is_whole():
                if are_ranks_known:
                    return
                raise CheckpointError(f"{self._folder} was removed before it had been unchanged long enough to be complete")

    def require(self) -> None:
        """Raise CheckpointError if files were added or changed since. A checkpoint that was removed is no longer written."""
        self._is_whole()

    def _is_whole(self) -> bool:
        """Whether all files are still there, unchanged. Raises CheckpointError for one that was added or changed."""
        after = set(fingerprint(self._folder))
        if added := sorted(path for path, _, _ in after - set(self._before)):
            raise CheckpointError(
                f"{self._folder} is still being written ({added[0]} changed); export it again when it is complete"
            )
        return after == set(self._before)
