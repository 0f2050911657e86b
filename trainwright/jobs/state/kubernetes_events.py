"""What the cluster says about a TrainJob: Events of it, its JobSet, the Jobs and Pods of its steps, and Kueue's Workload.

The Workload says why the job is queued. Kueue says so there, and only in part as events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import EVENT, Kind
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.text.foreign_texts import one_line

_CONTROLLED = ("TrainJob", "JobSet", "Job")
_PASSING_SECONDS = 30.0
WORKLOADS = tuple(Kind("kueue.x-k8s.io", version, "Workload", "workloads") for version in ("v1beta2", "v1beta1"))
"""The newest version first. Versions of Kueue before 0.15 serve only the second."""
LOCAL_QUEUE = Kind("kueue.x-k8s.io", WORKLOADS[0].version, "LocalQueue", "localqueues")
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""On a Workload: the UID of the TrainJob or JobSet that it belongs to."""
_PREEMPTOR = re.compile(r"\(UID: [0-9a-f-]+, JobUID: ([0-9a-f-]{36})\)")


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
    return subject == name or subject.startswith(prefixes) or _workload_name(trainjob).fullmatch(subject) is not None


def _workload_name(trainjob: Obj) -> re.Pattern[str]:
    """Return the pattern of Kueue's Workload names for a TrainJob or its JobSet. The suffix is a hash, so `a-2` does not match `a`."""
    return re.compile(rf"(?:trainjob|jobset)-{re.escape(name_of(trainjob))}-[a-z0-9]+")


def queue_message(cluster: Cluster, trainjob: Obj) -> str:
    """Return the queue's latest message, or "": from the job's condition, else from an event of Kueue's Workload. Raises ApiError."""
    if (waits := condition(trainjob, names.QUOTA_RESERVED)) is not None and waits.get("status") == "False":
        return reason_and_message(waits)
    workload = _workload_name(trainjob)
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


def involved_object(event: Obj) -> str:
    """Return the name of the object that the event is about."""
    return str((event.get("involvedObject") or {}).get("name") or "")


def workload_of(cluster: Cluster, trainjob: Obj) -> Obj | None:
    """Return the Workload of a TrainJob; None without Kueue, or before it has created one. Raises Forbidden."""
    return _workload(cluster, namespace_of(trainjob), uid_of(trainjob))


def _workload(cluster: Cluster, namespace: str, uid: str) -> Obj | None:
    for kind in WORKLOADS:
        try:
            found = cluster.list(kind, namespace, label_selector=f"{JOB_UID_LABEL}={uid}").items
        except NotFound:  # the cluster serves another version of Kueue, or none
            continue
        return max(found, key=lambda item: str(item["metadata"].get("creationTimestamp")), default=None)
    return None


def is_queue_served(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether the cluster has LocalQueues. Raises Forbidden."""
    return local_queues(cluster, namespace_of(trainjob)) is not None


def local_queues(cluster: Cluster, namespace: str) -> list[str] | None:
    """Return the names of the LocalQueues of a namespace; None without Kueue. Raises Forbidden."""
    for workload in WORKLOADS:
        try:
            return [name_of(queue) for queue in cluster.list(replace(LOCAL_QUEUE, version=workload.version), namespace).items]
        except NotFound:
            continue
    return None


def queue_reason(cluster: Cluster, trainjob: Obj, workload: Obj) -> str:
    """Return why a Workload is not admitted, with the queue's name: its quota, a preemption and by whom, a queue that is missing.

    "" if it is admitted, or not evaluated yet.
    """
    reserved, evicted = condition(workload, "QuotaReserved"), condition(workload, "Evicted")
    parts = []
    if workload["spec"].get("active") is False:
        parts.append("Deactivated: an administrator has to activate its Workload")
    if evicted is not None and evicted.get("status") == "True":
        reason, message = str(evicted.get("reason")), str(evicted.get("message"))
        match = _PREEMPTOR.search(message) if reason == "Preempted" else None
        preemptor = _owner_of(cluster, namespace_of(trainjob), match[1]) if match else ""
        parts.append(f"{reason}{f' by {preemptor}' if preemptor else ''}: {message}")
    elif reserved is not None and reserved.get("status") == "True":  # admitted: it does not wait for its queue
        return ""
    if reserved is not None and reserved.get("status") == "False" and str(reserved.get("message")) not in str(evicted):
        parts.append(f"{reserved.get('reason')}: {reserved.get('message')}")
    if not parts:
        return ""
    queue = workload["spec"].get("queueName") or labels_of(trainjob).get(names.QUEUE_LABEL, "")
    return f"queue {queue}: {'; '.join(parts)}"


def _owner_of(cluster: Cluster, namespace: str, uid: str) -> str:
    """Return `Kind name` of the job with that UID; "" if it is not in the namespace or cannot be read."""
    try:
        workload = _workload(cluster, namespace, uid)
    except ApiError:
        return ""
    owner = next((owner for owner in owners_of(workload or {}) if owner.get("uid") == uid), None)
    return f"{owner['kind']} {owner['name']}" if owner else name_of(workload or {})
