"""Finds disrupted pods that no longer exist, from their events. Pure.

A Job fails only after all its pods have terminated (Kubernetes 1.31 and later). By then a preempted pod and its condition may be
deleted, and the remaining pods show only lost connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

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
_POD_FAILURE_POLICY = re.compile(r"Pod (?:\S+/)?(\S+) has condition DisruptionTarget")
"""In the message of a Job that its podFailurePolicy ended: the only trace of a pod that was evicted through the Eviction API."""
_DELETION_CANCELLED = "Cancelling deletion"
"""The taint manager reports a cancelled deletion with the same event reason."""


def disrupted_pods(trainjob: Obj, events: list[Obj], pods: list[Obj]) -> Iterator[PodFailure]:
    """Yield the disrupted pods of the last attempt that no longer exist. `events` are the job's, sorted by time."""
    since = min(map(_created, pods), default="")
    for name, event in _disruptions(events).items():
        match = re.fullmatch(rf"{re.escape(name_of(trainjob))}-(.+)-\d+-(\d+)-[a-z0-9]+", name)
        if match is None or event_time(event) < since:
            continue
        step, index = match[1], int(match[2])
        if any(name_of(pod) == name or _replaces(pod, step, index, event_time(event)) for pod in pods):
            continue
        yield PodFailure(
            name=name,
            step=step,
            index=index,
            message=str(event.get("message") or ""),
            finished=event_time(event),
            disruption=_disruption_of(event),
            is_gone=True,
        )


def with_told_disruptions(failures: Iterable[PodFailure], events: list[Obj]) -> list[PodFailure]:
    """Add the disruptions that events report to failures of pods whose condition was not seen."""
    told = _disruptions(events)
    return [
        replace(failure, disruption=_disruption_of(told[failure.name]), disrupted=event_time(told[failure.name]))
        if failure.name in told and not failure.disruption
        else failure
        for failure in failures
    ]


def _disruptions(events: list[Obj]) -> dict[str, Obj]:
    """Return the last event about a disruption of each pod, by the pod's name."""
    found: dict[str, Obj] = {}
    for event in events:
        message = str(event.get("message") or "")
        if event.get("reason") in _DISRUPTION_REASONS and not message.startswith(_DELETION_CANCELLED):
            found[involved_object(event)] = event
        elif event.get("reason") == "PodFailurePolicy" and (match := _POD_FAILURE_POLICY.search(message)):
            found.setdefault(match[1], event)
        elif event.get("reason") in _DISRUPTION_REASONS:
            found.pop(involved_object(event), None)
    return found


def _disruption_of(event: Obj) -> str:
    return _DISRUPTION_REASONS.get(str(event["reason"]), "DisruptionTarget")


def _replaces(pod: Obj, step: str, index: int, disruption: str) -> bool:
    """Whether the pod replaced the one that was disrupted at `disruption`."""
    return (step_of(pod), index_of(pod)) == (step, index) and _created(pod) > disruption


def _created(pod: Obj) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
