"""Pods that were taken away and have left nothing but events. Pure.

A Job ends only when none of its pods terminates any more (Kubernetes 1.31 and later), so of a preempted pod its condition is gone
by then, and its peers' lost connections are all that is left to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api.objects import Obj, name_of
from trainwright.jobs.job_events import about, time_of
from trainwright.jobs.pod_failure import PodFailure
from trainwright.jobs.pods import index_of, step_of

_TAKEN = {
    "Preempted": "PreemptionByScheduler",
    "TaintManagerEviction": "DeletionByTaintManager",
    "Evicted": "Evicted",
}
"""Reasons of events of pods, as the reason that the pod's own condition had."""
_TAKEN_BACK = "Cancelling deletion"
"""The taint manager says that under the same reason."""


def taken_pods(trainjob: Obj, events: list[Obj], pods: list[Obj]) -> Iterator[PodFailure]:
    """Those of the last attempt that are not there any more. `events` are the job's, in the order of their time."""
    since = min(map(_created, pods), default="")
    last = {about(event): event for event in events if event.get("reason") in _TAKEN}
    for name, event in last.items():
        match = re.fullmatch(rf"{re.escape(name_of(trainjob))}-(.+)-\d+-(\d+)-[a-z0-9]+", name)
        message = str(event.get("message") or "")
        if match is None or time_of(event) < since or message.startswith(_TAKEN_BACK):
            continue
        step, index = match[1], int(match[2])
        if any(name_of(pod) == name or _replaces(pod, step, index, time_of(event)) for pod in pods):
            continue
        yield PodFailure(
            name=name,
            step=step,
            index=index,
            message=message,
            finished=time_of(event),
            taken=_TAKEN[str(event["reason"])],
        )


def _replaces(pod: Obj, step: str, index: int, taken: str) -> bool:
    """Whether its Job got over the loss."""
    return (step_of(pod), index_of(pod)) == (step, index) and _created(pod) > taken


def _created(pod: Obj) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
