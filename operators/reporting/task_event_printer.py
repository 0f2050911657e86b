"""Prints the events of a TrainJob into the log of a task, and times its phases. Imported when a task waits, not with its DAG."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trainwright.api.phase import Phase
from trainwright.jobs.credentials.credential_patterns import masked
from trainwright.jobs.state.usage import Usage
from trainwright.jobs.wait.job_events import JobEvents
from trainwright.jobs.wait.waiting import EventPrinter

PROGRESS_SECONDS = 10.0
"""Between two lines of mere progress in the log of a task. A training that reports every step would fill the log store with them."""
_PHASES = {
    Phase.Queued: "queue",
    Phase.Suspended: "queue",
    Phase.Starting: "start",
    Phase.Running: "run",
    Phase.Restarting: "run",
}


class TaskEventPrinter(EventPrinter):
    """As EventPrinter, with at most one line of mere progress in PROGRESS_SECONDS, and without credentials."""

    __slots__ = ("_now", "_phase", "_since", "seconds")

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = time.monotonic):
        super().__init__(lambda line: write(masked(line)), progress_seconds=PROGRESS_SECONDS, now=now)
        self._now = now
        self.seconds: dict[str, float] = {}
        """Seconds in `queue`, `start` and `run` of the phases whose end was seen; without a run whose start was not."""
        self._phase: str | None = None
        self._since: float | None = None

    @property
    def metrics(self) -> dict[str, str] | None:
        """What the training reported last; None if nothing was seen of it."""
        return dict(self.progress.metrics) if self.progress is not None else None

    def resume_from(self, event: Mapping[str, Any]) -> None:
        """Take over what the printer of a trigger has seen and shown, from the trigger's event."""
        self.started_from, self.usage = event.get("started_from") or "", Usage.from_dict(event.get("usage") or {})
        self.seconds = dict(event.get("seconds") or {})

    def __call__(self, events: JobEvents) -> None:
        is_first = self.progress is None
        super().__call__(events)
        if self.progress is None or (phase := _PHASES.get(self.progress.phase)) == self._phase:
            return
        now = self._now()
        if self._phase is not None and self._since is not None:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, None if is_first and phase == "run" else now
