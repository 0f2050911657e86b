"""The metrics that a training has reported in its status while somebody watched: the live part of its curves."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.jobs.state.progress import reported_values
from trainwright.jobs.wait.job_events import MetricChanges, Metrics

_MOST = 5000
"""Points that are kept; of more, every second one is dropped."""
Point = tuple[int, dict[str, float]]


class LiveMetrics:
    """The points of one job, in the order in which they were reported."""

    def __init__(self) -> None:
        self._changes = MetricChanges()
        self.points: list[Point] = []

    @property
    def axis(self) -> str:
        """What the first number of a point counts: `step`, or `report` of a training that reports no steps."""
        return "report" if self._changes.is_counted else "step"

    def observe(self, trainjob: Obj) -> None:
        """Add what is new in the status."""
        if values := reported_values(trainjob):
            self.points.extend(self._changes.of((Metrics(tuple(values.items())),)))
        if len(self.points) > _MOST:
            del self.points[1:-1:2]
