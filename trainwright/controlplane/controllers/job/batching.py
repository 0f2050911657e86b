"""What happens to a Job's pods at nearly the same time is judged together, as the real controller does within a second.

Else the first of several failures would be answered, with a new pod or a verdict, before the others are seen.
"""

from __future__ import annotations

from trainwright.api.objects import Obj, is_deleting, uid_of
from trainwright.controlplane.controllers.job.pods import is_terminal, restarts_of

BATCH_SECONDS = 0.2
"""Long enough for what belongs together on one machine, short enough to wait for at the end of every Job; upstream: 1 s."""


class Batching:
    """Delays of changes to pods and Jobs. A pod that only becomes ready, and a changed Job spec, are looked at at once."""

    def __init__(self, seconds: float = BATCH_SECONDS):
        self._seconds = seconds
        self._generations: dict[str, int] = {}

    def of_pod(self, event: str, pod: Obj) -> float:
        decides = event == "DELETED" or is_deleting(pod) or is_terminal(pod) or restarts_of(pod) > 0
        return self._seconds if decides else 0.0

    def of_job(self, event: str, job: Obj) -> float:
        if event == "DELETED":
            self._generations.pop(uid_of(job), None)
            return 0.0
        generation = int(job["metadata"].get("generation") or 0)
        known = self._generations.get(uid_of(job))
        self._generations[uid_of(job)] = generation
        return self._seconds if known == generation else 0.0
