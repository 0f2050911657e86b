"""Ending many containers at once: SIGTERM to all, one common grace period, SIGKILL to the rest, and a wait until they are gone."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from trainwright.controlplane.node.container import ContainerRun

POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0


def end_runs(runs: Iterable[ContainerRun], grace_seconds: float) -> None:
    """End these runs and return when none is left (or, after SIGKILL, when a bounded wait is over)."""
    left = [run for run in runs if run.exited() is None]
    if grace_seconds > 0:
        for run in left:
            run.signal(signal.SIGTERM)
        left = _wait(left, grace_seconds)
    for run in left:
        run.signal(signal.SIGKILL)
    _wait(left, _KILL_SECONDS)


def _wait(runs: list[ContainerRun], seconds: float) -> list[ContainerRun]:
    deadline = time.monotonic() + seconds
    while (runs := [run for run in runs if run.exited() is None]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return runs
