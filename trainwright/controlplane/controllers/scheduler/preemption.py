"""Preemption: pods of a higher priority take the place of others when the node has too little left for them.

Source: the plugin DefaultPreemption of kube-scheduler, for one node and without disruption budgets. A pure function decides which
pods have to go; the room is kept for those that it was made for, by `status.nominatedNodeName`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainwright.api.conditions import set_condition
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import is_deleting, uid_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.scheduler.messages import SOURCE
from trainwright.controlplane.controllers.scheduler.node_resources import NodeResources
from trainwright.controlplane.controllers.scheduler.scheduler_cache import PodInfo
from trainwright.materialize.pod_requests import Requests

_MESSAGE = f"{SOURCE}: preempting to accommodate a higher priority pod"


def find_victims(
    entries: Sequence[PodInfo], requests: Requests, bound: Iterable[PodInfo], resources: NodeResources
) -> list[PodInfo] | None:
    """Return the pods that have to go for `entries`, which need `requests` together; None if that would not help.

    Empty if what is ending already is enough. Of pods with lower priority than all of `entries`, the more important ones may stay:
    those of higher priority, then the older ones.
    """
    if any(entry.pod["spec"].get("preemptionPolicy") == "Never" for entry in entries):
        return None
    priority = min(entry.priority for entry in entries)
    lower = sorted((entry for entry in bound if entry.is_bound and entry.priority < priority), key=lambda entry: entry.order)
    without = resources.copy()
    for entry in lower:
        without.release(entry.requests)
    if without.insufficient(requests):
        return None
    without.reserve(requests)
    victims = []
    for entry in lower:
        if entry.is_terminating:
            continue
        if without.insufficient(entry.requests):
            victims.append(entry)
        else:
            without.reserve(entry.requests)
    return victims


def evict(cluster: Cluster, victim: PodInfo, preemptor: PodInfo, node: str) -> None:
    """Mark a pod as disrupted and delete it. One that is gone or ending is left alone. Raises ApiError."""
    namespace, name = victim.key
    try:
        pod = cluster.get(POD, name, namespace)
        if uid_of(pod) != victim.uid or is_deleting(pod):
            return
        status = {"conditions": [dict(entry) for entry in (pod.get("status") or {}).get("conditions") or []]}
        set_condition(status, "DisruptionTarget", True, "PreemptionByScheduler", _MESSAGE, now())
        patch = {"metadata": {"uid": victim.uid}, "status": status}
        cluster.patch(POD, name, patch, namespace, subresource="status")
        cluster.delete(POD, name, namespace, uid=victim.uid)
        record_event(cluster, pod, "Normal", "Preempted", f"Preempted by pod {preemptor.uid} on node {node}", SOURCE)
    except (NotFound, Conflict):  # deleted, or replaced by another of its name
        return


def is_nominated(entry: PodInfo) -> bool:
    """Whether room was made for a pending pod, which has not been bound yet."""
    return bool((entry.pod.get("status") or {}).get("nominatedNodeName"))
