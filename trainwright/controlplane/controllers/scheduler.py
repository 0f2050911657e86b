"""The scheduler of a one-node cluster: a pod is bound when what it asks for fits, else it stays Pending and says why."""

from __future__ import annotations

from decimal import Decimal

from trainwright.api.conditions import condition, set_condition
from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, NODE, POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.api.quantities import parse_quantity
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, own_key
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.queue import Key

RETRY_SECONDS = 2.0


def scheduler(cluster: Cluster) -> Controller:
    return Controller("scheduler", Scheduler(cluster).reconcile, {POD: own_key, NODE: lambda _node: []})


class Scheduler:
    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        try:
            pod = self._cluster.get(POD, name, namespace)
        except NotFound:
            return None
        if pod["spec"].get("nodeName") or is_deleting(pod) or pod["spec"].get("schedulingGates"):
            return None
        nodes = self._cluster.list(NODE).items
        reason = self._obstacle(pod, nodes)
        if reason is not None:
            self._unschedulable(pod, reason)
            return RETRY_SECONDS
        self._cluster.patch(POD, name, {"spec": {"nodeName": name_of(nodes[0])}}, namespace)
        self._mark(pod, True, "", "")
        return None

    def _obstacle(self, pod: Obj, nodes: list[Obj]) -> str | None:
        """Why the pod cannot run now, in kubectl's words; None when it can."""
        for volume in pod["spec"].get("volumes") or []:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim is not None:
                try:
                    self._cluster.get(CLAIM, claim, namespace_of(pod))
                except NotFound:
                    return f'persistentvolumeclaim "{claim}" not found'
        if not nodes:
            return "0/0 nodes are available"
        node = nodes[0]
        for key, value in (pod["spec"].get("nodeSelector") or {}).items():
            if (node["metadata"].get("labels") or {}).get(key) != value:
                return "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        return self._lacking(pod, node)

    def _lacking(self, pod: Obj, node: Obj) -> str | None:
        wanted = requests_of(pod)
        used: dict[str, Decimal] = {}
        for other in self._cluster.list(POD, field_selector=f"spec.nodeName={name_of(node)}").items:
            if (other.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                for resource, amount in requests_of(other).items():
                    used[resource] = used.get(resource, Decimal(0)) + amount
        capacity = (node.get("status") or {}).get("allocatable") or {}
        lacking = [
            resource
            for resource, amount in sorted(wanted.items())
            if amount > 0 and used.get(resource, Decimal(0)) + amount > parse_quantity(capacity.get(resource, 0)).value
        ]
        if not lacking:
            return None
        return "0/1 nodes are available: " + ", ".join(f"1 Insufficient {resource}" for resource in lacking) + "."

    def _unschedulable(self, pod: Obj, reason: str) -> None:
        if self._mark(pod, False, "Unschedulable", reason):
            record_event(self._cluster, pod, "Warning", "FailedScheduling", reason, "default-scheduler")

    def _mark(self, pod: Obj, scheduled: bool, reason: str, message: str) -> bool:
        status = self._cluster.get(POD, name_of(pod), namespace_of(pod)).get("status") or {}
        existing = condition({"status": status}, "PodScheduled")
        if existing and existing.get("status") == str(scheduled) and existing.get("message", "") == message:
            return False
        set_condition(status, "PodScheduled", scheduled, reason, message, now())
        self._cluster.patch(
            POD, name_of(pod), {"status": {"conditions": status["conditions"]}}, namespace_of(pod), subresource="status"
        )
        return True


def requests_of(pod: Obj) -> dict[str, Decimal]:
    """What a pod asks for: the sum of its containers, or its largest init container; limits count where requests are absent."""
    total: dict[str, Decimal] = {}
    for container in pod["spec"].get("containers") or []:
        for resource, amount in _container_requests(container).items():
            total[resource] = total.get(resource, Decimal(0)) + amount
    for container in pod["spec"].get("initContainers") or []:
        for resource, amount in _container_requests(container).items():
            total[resource] = max(total.get(resource, Decimal(0)), amount)
    return total


def _container_requests(container: Obj) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {resource: parse_quantity(amount).value for resource, amount in merged.items()}
