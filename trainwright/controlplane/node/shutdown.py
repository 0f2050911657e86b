"""Stops many containers: SIGTERM to all, one common grace period, SIGKILL to the rest, and a wait for their exit."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from trainwright.controlplane.node.container import ContainerRun

POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0


def stop_runs(runs: Iterable[ContainerRun], grace_seconds: float) -> None:
    """Stop these runs and wait for their exit, after SIGKILL for a limited time."""
    left = [run for run in runs if run.termination() is None]
    if grace_seconds > 0:
        for run in left:
            run.signal(signal.SIGTERM)
        left = _wait(left, grace_seconds)
    for run in left:
        run.signal(signal.SIGKILL)
    _wait(left, _KILL_SECONDS)


def _wait(runs: list[ContainerRun], seconds: float) -> list[ContainerRun]:
    deadline = time.monotonic() + seconds
    while (runs := [run for run in runs if run.termination() is None]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return runs
