"""Prints the events of a TrainJob into the log of a task, and counts jobs and times their phases in Airflow's own metrics.

The metrics go to StatsD or OpenTelemetry, where Airflow has them. Their names are fixed and have no tags: one series each, whatever
the number of DAGs and runs. Imported when a task waits, not with its DAG.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
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
PLACES = ("airflow.sdk.observability.stats", "airflow.observability.stats", "airflow.stats")
"""Where Airflow 3.2 and later, 3.1 and earlier versions have it."""
PREFIX = "trainwright.jobs"
PHASES = ("queue", "start", "run")


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
        # A phase is timed when another one begins.
        if self.progress is None or (phase := _PHASES.get(self.progress.phase)) == self._phase:
            return
        now = self._now()
        if self._phase is not None and self._since is not None:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, None if is_first and phase == "run" else now


def count(what: str, places: Sequence[str] = PLACES) -> None:
    """Count one TrainJob: submitted, adopted, succeeded or failed."""
    if (stats := airflow_stats(places)) is not None:
        stats.incr(f"{PREFIX}.{what}")


def record_times(seconds: Mapping[str, float], places: Sequence[str] = PLACES) -> None:
    """Record how long a TrainJob was queued, starting and running: keys of PHASES, values in seconds."""
    if (stats := airflow_stats(places)) is not None:
        for phase in PHASES:
            if phase in seconds:
                stats.timing(f"{PREFIX}.{phase}_time", timedelta(seconds=seconds[phase]))


def airflow_stats(places: Sequence[str] = PLACES) -> Any:
    """Airflow's statistics; None in a version that has them elsewhere."""
    for place in places:
        try:
            module = import_module(place)
        except ImportError:  # another version has them elsewhere
            continue
        if (found := getattr(module, "Stats", None)) is not None:
            return found
    return None
