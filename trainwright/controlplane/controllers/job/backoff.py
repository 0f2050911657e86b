"""How long a Job waits before it replaces failed pods: 10 s, doubling with each failure since the last success, at most 10 minutes.

Counted from the end of the last failed pod. A Job with a limit per index waits for each index on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainwright.api.objects import Obj
from trainwright.controlplane.controllers.job.per_index import all_failures
from trainwright.controlplane.controllers.job.pods import finished_at

FIRST_BACKOFF_SECONDS = 10.0
MOST_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True)
class BackoffRecord:
    """Failures since the last success, over the life of a Job's controller; pods that are gone stay counted."""

    failures: int = 0
    last: datetime | None = None

    def after(self, succeeded: list[Obj], failed: list[Obj]) -> BackoffRecord:
        """The record once these newly ended pods are counted; a success forgets every failure before it."""
        times = sorted(finished_at(pod) for pod in failed)
        if not succeeded:
            return BackoffRecord(self.failures + len(times), times[-1]) if times else self
        success = max(finished_at(pod) for pod in succeeded)
        later = [time for time in times if time > success]
        return BackoffRecord(len(later), later[-1] if later else None)

    def seconds_left(self, now: datetime) -> float:
        return _left(self.failures, self.last, now) if self.last else 0.0


def index_seconds_left(failed: Obj | None, now: datetime) -> float:
    """How long an index still waits, whose last failed pod this is."""
    return _left(all_failures(failed) + 1, finished_at(failed), now) if failed else 0.0


def backoff_seconds(failures: int) -> float:
    if failures <= 0:
        return 0.0
    return float(min(FIRST_BACKOFF_SECONDS * 2 ** (min(failures, 20) - 1), MOST_BACKOFF_SECONDS))


def _left(failures: int, last: datetime, now: datetime) -> float:
    return max(backoff_seconds(failures) - (now - last).total_seconds(), 0.0)
