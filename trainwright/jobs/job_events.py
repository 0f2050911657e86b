"""The events of a TrainJob: its own, its JobSet's, those of the Jobs and Pods of its steps, and of its place in a queue."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.kinds import EVENT
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import Cluster


def events_of(cluster: Cluster, trainjob: Obj, steps: Iterable[str]) -> list[Obj]:
    """In the order of their time, also of pods that are gone. Raises ApiError."""
    name = name_of(trainjob)
    prefixes = tuple(f"{name}-{step}-" for step in steps)
    workload = _workload(trainjob)
    events = in_its_time(trainjob, cluster.list(EVENT, namespace_of(trainjob)).items)
    ours = [e for e in events if (subject := about(e)) == name or subject.startswith(prefixes) or workload.fullmatch(subject)]
    return sorted(ours, key=time_of)


def queue_message(cluster: Cluster, trainjob: Obj) -> str:
    """What its queue said last: on the job itself, or, as Kueue, in an event of its Workload; empty for nothing. Raises ApiError."""
    if (waits := condition(trainjob, names.QUOTA_RESERVED)) is not None and waits.get("status") == "False":
        return said(waits)
    workload = _workload(trainjob)
    events = cluster.list(EVENT, namespace_of(trainjob), field_selector="involvedObject.kind=Workload").items
    ours = [event for event in in_its_time(trainjob, events) if workload.fullmatch(about(event))]
    return said(max(ours, key=time_of)) if ours else ""


def in_its_time(trainjob: Obj, events: list[Obj]) -> list[Obj]:
    """Without those from before it was made: they are about an earlier job of its name. To the second, as times of objects are."""
    made = str(trainjob["metadata"].get("creationTimestamp") or "")[:19]
    return [event for event in events if not (when := time_of(event)) or when[:19] >= made]


def steps_of(trainjob: Obj) -> set[str]:
    """The steps that its status speaks of."""
    return {str(entry["name"]) for entry in (trainjob.get("status") or {}).get("jobsStatus") or []}


def said(event: Obj) -> str:
    """Of an event, or of a condition."""
    return f"{event.get('reason')}: {event.get('message')}"


def time_of(event: Obj) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _workload(trainjob: Obj) -> re.Pattern[str]:
    """How Kueue names the Workload of a TrainJob, or of the JobSet in its place; the end is a digest, so that `a-2` is not `a`."""
    return re.compile(rf"(?:trainjob|jobset)-{re.escape(name_of(trainjob))}-[a-z0-9]+")


def about(event: Obj) -> str:
    """The name of the object that it is about."""
    return str((event.get("involvedObject") or {}).get("name") or "")
