"""The backoff before a Job replaces failed pods: 10 s, doubled by each failure since the last success, at most 10 minutes.

Counted from the end of the last failed pod. A Job with a backoff limit per index has a separate backoff per index.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainwright.api.objects import Obj
from trainwright.backoff import Backoff
from trainwright.controlplane.controllers.job.per_index import all_failures
from trainwright.controlplane.controllers.job.pods import finished_at

BACKOFF = Backoff(10.0, 600.0)


@dataclass(frozen=True)
class BackoffRecord:
    """Failures since the last success, including those of deleted pods, during the lifetime of this process."""

    failures: int = 0
    last: datetime | None = None

    def updated(self, succeeded: list[Obj], failed: list[Obj]) -> BackoffRecord:
        """Return the record with newly finished pods. A success resets all earlier failures."""
        times = sorted(finished_at(pod) for pod in failed)
        if not succeeded:
            return BackoffRecord(self.failures + len(times), times[-1]) if times else self
        success = max(finished_at(pod) for pod in succeeded)
        later = [time for time in times if time > success]
        return BackoffRecord(len(later), later[-1] if later else None)

    def seconds_left(self, now: datetime) -> float:
        return _left(self.failures, self.last, now) if self.last else 0.0


def index_seconds_left(failed: Obj | None, now: datetime) -> float:
    """Return the remaining backoff of an index, given its last failed pod."""
    return _left(all_failures(failed) + 1, finished_at(failed), now) if failed else 0.0


def _left(failures: int, last: datetime, now: datetime) -> float:
    return max(BACKOFF.seconds(failures) - (now - last).total_seconds(), 0.0)
