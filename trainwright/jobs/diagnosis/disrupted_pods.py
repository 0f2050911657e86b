"""Finds disrupted pods that no longer exist, from their events. Pure.

A Job fails only after all its pods have terminated (Kubernetes 1.31 and later). By then a preempted pod and its condition may be
deleted, and the remaining pods show only lost connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api.objects import Obj, name_of
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.state.kubernetes_events import event_time, involved_object
from trainwright.jobs.state.pods import index_of, step_of

_DISRUPTION_REASONS = {
    "Preempted": "PreemptionByScheduler",
    "TaintManagerEviction": "DeletionByTaintManager",
    "Evicted": "Evicted",
}
"""Event reason to the reason that the pod's DisruptionTarget condition would have."""
_DELETION_CANCELLED = "Cancelling deletion"
"""The taint manager reports a cancelled deletion with the same event reason."""


def disrupted_pods(trainjob: Obj, events: list[Obj], pods: list[Obj]) -> Iterator[PodFailure]:
    """Yield the disrupted pods of the last attempt that no longer exist. `events` are the job's, sorted by time."""
    since = min(map(_created, pods), default="")
    last = {involved_object(event): event for event in events if event.get("reason") in _DISRUPTION_REASONS}
    for name, event in last.items():
        match = re.fullmatch(rf"{re.escape(name_of(trainjob))}-(.+)-\d+-(\d+)-[a-z0-9]+", name)
        message = str(event.get("message") or "")
        if match is None or event_time(event) < since or message.startswith(_DELETION_CANCELLED):
            continue
        step, index = match[1], int(match[2])
        if any(name_of(pod) == name or _replaces(pod, step, index, event_time(event)) for pod in pods):
            continue
        yield PodFailure(
            name=name,
            step=step,
            index=index,
            message=message,
            finished=event_time(event),
            disruption=_DISRUPTION_REASONS[str(event["reason"])],
        )


def _replaces(pod: Obj, step: str, index: int, disruption: str) -> bool:
    """Whether the pod replaced the one that was disrupted at `disruption`."""
    return (step_of(pod), index_of(pod)) == (step, index) and _created(pod) > disruption


def _created(pod: Obj) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
