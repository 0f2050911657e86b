"""Kubernetes Events of a TrainJob, its JobSet, the Jobs and Pods of its steps, and its Kueue Workload."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.text.foreign_texts import one_line

_CONTROLLED = ("TrainJob", "JobSet", "Job")
_PASSING_SECONDS = 30.0


def events_of(cluster: Cluster, trainjob: Obj, steps: Iterable[str], claims: Iterable[str] = ()) -> list[Obj]:
    """Return the events of the job and of these claims, sorted by time, including those of deleted pods. Raises ApiError."""
    steps, claims = tuple(steps), frozenset(claims)
    events = since_creation(trainjob, cluster.list(EVENT, namespace_of(trainjob)).items)
    ours = (event for event in events if belongs_to(event, trainjob, steps) or involved_object(event) in claims)
    return sorted(ours, key=event_time)


def belongs_to(event: Obj, trainjob: Obj, steps: Iterable[str]) -> bool:
    """Whether an event is about the TrainJob, its JobSet, a Job or a pod of these steps, or its Workload. Pure."""
    name, subject = name_of(trainjob), involved_object(event)
    prefixes = tuple(f"{name}-{step}-" for step in steps)
    return subject == name or subject.startswith(prefixes) or _workload(trainjob).fullmatch(subject) is not None


def queue_message(cluster: Cluster, trainjob: Obj) -> str:
    """Return the queue's latest message, or "": from the job's condition, else from an event of Kueue's Workload. Raises ApiError."""
    if (waits := condition(trainjob, names.QUOTA_RESERVED)) is not None and waits.get("status") == "False":
        return reason_and_message(waits)
    workload = _workload(trainjob)
    events = cluster.list(EVENT, namespace_of(trainjob), field_selector="involvedObject.kind=Workload").items
    ours = [event for event in since_creation(trainjob, events) if workload.fullmatch(involved_object(event))]
    return reason_and_message(max(ours, key=event_time)) if ours else ""


def since_creation(trainjob: Obj, events: list[Obj]) -> list[Obj]:
    """Drop events from before the job's creation: they concern an earlier job of the same name.

    Compares whole seconds, the resolution of `creationTimestamp`.
    """
    created = str(trainjob["metadata"].get("creationTimestamp") or "")[:19]
    return [event for event in events if not (when := event_time(event)) or when[:19] >= created]


def steps_of(trainjob: Obj) -> set[str]:
    """Return the names of the steps in the job's status."""
    return {str(entry["name"]) for entry in (trainjob.get("status") or {}).get("jobsStatus") or []}


def reason_and_message(event: Obj) -> str:
    """Return `Reason: message` of an event or a condition, in one line."""
    return f"{one_line(event.get('reason'))}: {one_line(event.get('message')).removesuffix(':')}"


def event_time(event: Obj) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def first_time(event: Obj) -> str:
    """Return when an event was first seen, if it was counted more than once."""
    return str(event.get("firstTimestamp") or event.get("eventTime") or event.get("lastTimestamp") or "")


def is_passing(event: Obj) -> bool:
    """Whether a controller only met an object of its own that it did not know of yet, which passes by itself. Pure."""
    about = str((event.get("involvedObject") or {}).get("kind") or "")
    if about not in _CONTROLLED or not str(event.get("message") or "").rstrip().endswith("already exists"):
        return False
    first, last = first_time(event), event_time(event)
    return not (first and last) or seconds_between(first, datetime.fromisoformat(last)) < _PASSING_SECONDS


def _workload(trainjob: Obj) -> re.Pattern[str]:
    """Return the pattern of Kueue's Workload names for a TrainJob or its JobSet. The suffix is a hash, so `a-2` does not match `a`."""
    return re.compile(rf"(?:trainjob|jobset)-{re.escape(name_of(trainjob))}-[a-z0-9]+")


def involved_object(event: Obj) -> str:
    """Return the name of the object that the event is about."""
    return str((event.get("involvedObject") or {}).get("name") or "")
