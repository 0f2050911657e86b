"""In the place of `trainwright.tracking.tracking`: records what a tracker would get, and how its run ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trainwright.jobs.wait.job_events import JobEvents
from trainwright.tracking import TrackedRun, TrackingTarget


class RecordedTracking:
    """Call it as `tracking`. `ended` is the type of the error with which the wait ended, None without one."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.uid = ""
        self.events: list[Any] = []
        self.ended: list[type[BaseException] | None] = []

    @contextmanager
    def __call__(self, run: TrackedRun, targets: Sequence[TrackingTarget], **_: Any) -> Iterator[RecordedTracking._Observer]:
        self.targets = [str(target) for target in targets]
        try:
            yield self._Observer(self)
        except BaseException as error:
            self.ended.append(type(error))
            raise
        self.ended.append(None)

    class _Observer:
        def __init__(self, recorded: RecordedTracking):
            self._recorded = recorded

        def begin(self, uid: str) -> None:
            self._recorded.uid = uid

        def __call__(self, events: JobEvents) -> None:
            self._recorded.events += events
