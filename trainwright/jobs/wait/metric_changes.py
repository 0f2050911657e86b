"""The metrics in a job's events as numbers: those that have changed, and the step that they are of."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainwright.jobs.wait.job_events import JobEvents, Metrics

_STEP = "step"


class MetricChanges:
    """Remembers which values were reported before. A training that reports no step gets one: the number of the report."""

    __slots__ = ("_count", "_known")

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._count = 0

    def of(self, events: JobEvents) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield step and metrics of each report in the events that changed a number; what is not finite is left out."""
        for event in events:
            if not isinstance(event, Metrics):
                continue
            values = dict(event.values)
            changed = {name: value for name, value in values.items() if name != _STEP and self._known.get(name) != value}
            self._known = values
            numbers = {name: number for name, value in changed.items() if (number := finite(value)) is not None}
            if numbers:
                self._count += 1
                step = finite(values.get(_STEP, ""))
                yield self._count if step is None else int(step), numbers


def finite(value: str | float) -> float | None:
    """Return a reported value as a number; None if it is none, or not finite."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
