"""Deadlines of a job: time in the queue, until all pods have started, of the training, and in total. Measures time; does not wait."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.phase import Phase

START_TIMEOUT_SECONDS, RUN_TIMEOUT_SECONDS = 21600, 7 * 24 * 3600
"""Default for `start_timeout_seconds`: six hours. What can never start fails earlier; this ends a wait that nobody looks at."""
DEADLINE = "activeDeadlineSeconds"
"""The field of a TrainJob's spec for the deadline that the cluster enforces."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Maximum seconds that a job may be queued or suspended, starting, running, and in `total`.

    It starts until every pod of the training has started once; time in which an initializer runs counts only for `total`. None
    means no limit.
    """

    queue: float | None = None
    start: float | None = None
    run: float | None = None
    total: float | None = None


class DeadlineTimer:
    """Measures the time spent against each deadline.

    Time is cumulative: when a job is queued again, its earlier time in the queue still counts.
    """

    __slots__ = ("_counting", "_deadlines", "_last_update", "_spent", "_started")

    def __init__(self, deadlines: Deadlines):
        self._deadlines = deadlines
        self._spent = {"queue": 0.0, "initialization": 0.0, "start": 0.0, "run": 0.0}
        self._counting, self._last_update = "queue", time.monotonic()
        self._started = self._last_update

    def seconds_left(self, phase: Phase, *, is_initializing: bool = False, has_started: bool | None = None) -> float:
        """Return the seconds until the deadline that counts now; infinity if there is none.

        `has_started` tells whether every pod of the training has started once; where that is unknown (None), the phase decides.
        """
        now = time.monotonic()
        self._spent[self._counting] += now - self._last_update
        self._last_update = now
        self._counting, limit = self._limit(phase, is_initializing, has_started)
        left = math.inf if limit is None else limit - self._spent[self._counting]
        return min(left, math.inf if self._deadlines.total is None else self._started + self._deadlines.total - now)

    def expired(
        self, phase: Phase, *, is_initializing: bool = False, has_started: bool | None = None
    ) -> tuple[str, float] | None:
        """Return the expired deadline (`queue`, `start`, `run` or `total`) and its limit in seconds; None if none has expired.

        The arguments are those of `seconds_left`.
        """
        if self.seconds_left(phase, is_initializing=is_initializing, has_started=has_started) > 0:
            return None
        what, limit = self._limit(phase, is_initializing, has_started)
        if limit is not None and self._spent[what] >= limit:  # before the total: it says what took too long
            return what, limit
        return "total", self._deadlines.total or 0.0

    def _limit(self, phase: Phase, is_initializing: bool, has_started: bool | None) -> tuple[str, float | None]:
        if phase in (Phase.Queued, Phase.Suspended):
            return "queue", self._deadlines.queue
        is_starting = phase in (Phase.Starting, Phase.Restarting) if has_started is None else not has_started
        if is_starting:
            return ("initialization", None) if is_initializing else ("start", self._deadlines.start)
        return "run", self._deadlines.run


def is_initializing(trainjob: Obj) -> bool:
    """Whether an initializer of the job is running: it may load a dataset or a model for hours. Pure."""
    steps = (trainjob.get("status") or {}).get("jobsStatus") or []
    return any(step.get("ready") for step in steps if step.get("name") in names.INITIALIZERS)
