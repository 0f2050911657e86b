"""How long a job may take for each thing that can take too long: queue, start, run, and all of it. Counts; does not wait."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from trainwright.api.phase import Phase


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a job may be queued or suspended, starting (until it trains), and running; `total` whatever it does.

    None is no limit.
    """

    queue: float | None = None
    start: float | None = None
    run: float | None = None
    total: float | None = None


class Clock:
    """The time spent in what each deadline counts, and which deadline counts in a phase.

    Time is summed: a job that runs, is queued again and runs on has used up what it spent before.
    """

    __slots__ = ("_begun", "_deadlines", "_looked", "_spent", "_what")

    def __init__(self, deadlines: Deadlines):
        self._deadlines = deadlines
        self._spent = {"queue": 0.0, "start": 0.0, "run": 0.0}
        self._what, self._looked = "queue", time.monotonic()
        self._begun = self._looked

    def left(self, phase: Phase) -> float:
        """Seconds until the deadline of this phase; endless without one."""
        now = time.monotonic()
        self._spent[self._what] += now - self._looked
        self._looked = now
        self._what, limit = self._limit(phase)
        left = math.inf if limit is None else limit - self._spent[self._what]
        return min(left, math.inf if self._deadlines.total is None else self._begun + self._deadlines.total - now)

    def overdue(self, phase: Phase) -> tuple[str, float] | None:
        """The deadline that has passed (`queue`, `start`, `run` or `total`) and its seconds; None while there is time left."""
        if self.left(phase) > 0:
            return None
        what, limit = self._limit(phase)
        if limit is not None and self._spent[what] >= limit:
            return what, limit
        return "total", self._deadlines.total or 0.0

    def _limit(self, phase: Phase) -> tuple[str, float | None]:
        if phase in (Phase.Queued, Phase.Suspended):
            return "queue", self._deadlines.queue
        if phase is Phase.Starting:
            return "start", self._deadlines.start
        return "run", self._deadlines.run
