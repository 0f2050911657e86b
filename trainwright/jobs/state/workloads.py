"""Kueue's Workload of a TrainJob: why the job is queued. Kueue says so there, and only in part as events."""

from __future__ import annotations

import re
from dataclasses import replace

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster

WORKLOADS = tuple(Kind("kueue.x-k8s.io", version, "Workload", "workloads") for version in ("v1beta2", "v1beta1"))
"""The newest version first. Versions of Kueue before 0.15 serve only the second."""
LOCAL_QUEUE = Kind("kueue.x-k8s.io", WORKLOADS[0].version, "LocalQueue", "localqueues")
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""On a Workload: the UID of the TrainJob or JobSet that it belongs to."""
_PREEMPTOR = re.compile(r"\(UID: [0-9a-f-]+, JobUID: ([0-9a-f-]{36})\)")


def workload_of(cluster: Cluster, trainjob: Obj) -> Obj | None:
    """Return the Workload of a TrainJob; None without Kueue, or before it has created one. Raises Forbidden."""
    return _workload(cluster, namespace_of(trainjob), uid_of(trainjob))


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
        parts.append(_eviction(cluster, namespace_of(trainjob), evicted))
    elif reserved is not None and reserved.get("status") == "True":
        return ""
    if reserved is not None and reserved.get("status") == "False" and str(reserved.get("message")) not in str(evicted):
        parts.append(f"{reserved.get('reason')}: {reserved.get('message')}")
    if not parts:
        return ""
    queue = workload["spec"].get("queueName") or labels_of(trainjob).get(names.QUEUE_LABEL, "")
    return f"queue {queue}: {'; '.join(parts)}"


def _eviction(cluster: Cluster, namespace: str, evicted: Obj) -> str:
    reason, message = str(evicted.get("reason")), str(evicted.get("message"))
    match = _PREEMPTOR.search(message) if reason == "Preempted" else None
    preemptor = _owner_of(cluster, namespace, match[1]) if match else ""
    return f"{reason}{f' by {preemptor}' if preemptor else ''}: {message}"


def _owner_of(cluster: Cluster, namespace: str, uid: str) -> str:
    """Return `Kind name` of the job with that UID; "" if it is not in the namespace or cannot be read."""
    try:
        workload = _workload(cluster, namespace, uid)
    except ApiError:
        return ""
    owner = next((owner for owner in owners_of(workload or {}) if owner.get("uid") == uid), None)
    return f"{owner['kind']} {owner['name']}" if owner else name_of(workload or {})


def _workload(cluster: Cluster, namespace: str, uid: str) -> Obj | None:
    for kind in WORKLOADS:
        try:
            found = cluster.list(kind, namespace, label_selector=f"{JOB_UID_LABEL}={uid}").items
        except NotFound:
            continue
        return max(found, key=lambda item: str(item["metadata"].get("creationTimestamp")), default=None)
    return None
