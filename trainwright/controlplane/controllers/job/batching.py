"""Delays changes of a Job's pods, so that simultaneous ones are processed together, like the upstream controller within 1 s.

Otherwise the first of several failures would cause a new pod, or finish the Job, before the others are seen.
"""

from __future__ import annotations

from trainwright.api.objects import Obj, generation_of, is_deleting, uid_of
from trainwright.controlplane.controllers.job.pods import is_terminal, restarts_of

BATCH_SECONDS = 0.2
"""Long enough for simultaneous changes on one machine, short enough to delay the end of every Job; upstream: 1 s."""


class Batching:
    """Delays of changes to pods and Jobs. Pods becoming ready and changed Job specs are not delayed."""

    def __init__(self, seconds: float = BATCH_SECONDS):
        self._seconds = seconds
        self._generations: dict[str, int] = {}

    def pod_delay(self, event: str, pod: Obj) -> float:
        is_significant = event == "DELETED" or is_deleting(pod) or is_terminal(pod) or restarts_of(pod) > 0
        return self._seconds if is_significant else 0.0

    def job_delay(self, event: str, job: Obj) -> float:
        if event == "DELETED":
            self._generations.pop(uid_of(job), None)
            return 0.0
        generation = generation_of(job)
        known = self._generations.get(uid_of(job))
        self._generations[uid_of(job)] = generation
        return self._seconds if known == generation else 0.0
