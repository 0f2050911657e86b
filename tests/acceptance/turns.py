"""Scenes that others on the same cluster would notice, such as an API server that is gone, wait until all others have ended."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold the stage until the block ends: with others, or alone. `folder` is the same in all processes of a run.

    Whoever waits to be alone keeps the door: nobody else comes in meanwhile.
    """
    with (folder / "room").open("ab") as room:
        with (folder / "door").open("ab") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
