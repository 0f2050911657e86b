"""One scheduling cycle: the node with what is left of its resources, and why a pod cannot be bound to it.

Filters are cordon, taints, selector and required affinity, with kube-scheduler's order and messages. A TrainJob that does not fit even
on the empty node is reported by a condition and an Event, before any deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainwright.api import names
from trainwright.api.conditions import condition, set_condition
from trainwright.api.errors import NotFound
from trainwright.api.integers import parse_int64
from trainwright.api.kinds import CLAIM, TRAINJOB
from trainwright.api.objects import Obj, controller_of, is_controlled_by, labels_of, name_of, namespace_of
from trainwright.api.quantities import Requests
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.gangs import PODS, NodeResources, add, stages
from trainwright.controlplane.controllers.scheduler.scheduler_cache import PodInfo

_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
SOURCE = "default-scheduler"
"""The component that events of scheduling come from."""
_AVAILABLE = "0/1 nodes are available: {}."
_HELPLESS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
_NO_VICTIMS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
_NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
NO_NODES = "no nodes available to schedule pods"


class Cycle:
    """The node and its resources in one scheduling cycle."""

    def __init__(self, cluster: Cluster, node: Obj, resources: NodeResources):
        self._cluster, self._node, self.resources, self.node_name = cluster, node, resources, name_of(node)
        self._claims: dict[Key, bool] = {}

    def reason(self, entry: PodInfo) -> str:
        """Return why this pod cannot be bound, or an empty string."""
        if why := self.misplaced(entry):
            return why  # reported before resources, like kube-scheduler
        insufficient = self.resources.insufficient(entry.requests)
        if not insufficient:
            return ""
        is_permanent = bool(self.resources.exceeding_capacity(entry.requests))
        return insufficient_message(insufficient, is_permanent=is_permanent, pod_spec=entry.pod["spec"])

    def misplaced(self, entry: PodInfo) -> str:
        """Return why this pod cannot run on the node regardless of resources, or an empty string."""
        spec = entry.pod["spec"]
        for volume in spec.get("volumes") or []:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim is not None and not self._has_claim((entry.key[0], claim)):
                return unbound(f'persistentvolumeclaim "{claim}" not found')
        why = obstacle(spec, self._node)
        return wrong_node(why, spec) if why else ""

    def _has_claim(self, key: Key) -> bool:
        if key not in self._claims:
            try:
                self._cluster.get(CLAIM, key[1], key[0])
                self._claims[key] = True
            except NotFound:  # not created yet, or deleted: the pod cannot start without it
                self._claims[key] = False
        return self._claims[key]


def obstacle(pod_spec: Obj, node: Obj) -> str:
    """Return why the pod cannot run on this node, or an empty string."""
    spec, tolerations = node.get("spec") or {}, pod_spec.get("tolerations") or []
    if spec.get("unschedulable") and not _tolerated(_UNSCHEDULABLE, tolerations):
        return "node(s) were unschedulable"
    for taint in spec.get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return "" if _selected(pod_spec, node) else _NO_MATCH


def _tolerated(taint: Obj, tolerations: Iterable[Obj]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    """Whether a toleration matches a taint. An empty key with Exists matches all taints, an empty effect all effects."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _selected(pod_spec: Obj, node: Obj) -> bool:
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_holds(term, node) for term in required.get("nodeSelectorTerms") or [])


def _term_holds(term: Obj, node: Obj) -> bool:
    """Whether a term matches the node. A term without requirements matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    found = [_holds(entry, labels_of(node)) for entry in expressions]
    return all(found) and all(_holds(entry, {"metadata.name": name_of(node)}) for entry in fields)


def _holds(requirement: Obj, values: dict[str, str]) -> bool:
    value, expected = values.get(requirement["key"]), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value is not None and value in expected
        case "NotIn":
            return value not in expected
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            texts = [text for text in (value, *expected) if text is not None]
            numbers = [number for text in texts if (number := parse_int64(text)) is not None]
            if len(numbers) != 2:  # not numbers: no match, like in kube-scheduler
                return False
            return numbers[0] > numbers[1] if operator == "Gt" else numbers[0] < numbers[1]
    return False


def wrong_node(why: str, pod_spec: dict[str, object]) -> str:
    """The pod cannot run on the node, regardless of resources."""
    return f"{_AVAILABLE.format('1 ' + why)} {_second(pod_spec, _HELPLESS)}"


def _second(pod_spec: dict[str, object], sentence: str) -> str:
    return _NEVER if pod_spec.get("preemptionPolicy") == "Never" else sentence


def unbound(why: str) -> str:
    """An object that the pod refers to does not exist, so that no node is suitable."""
    return f"{_AVAILABLE.format(why)} {_HELPLESS}"


def insufficient_message(insufficient: list[str], *, is_permanent: bool, pod_spec: dict[str, object]) -> str:
    """The node has too few free resources, or (`is_permanent`) too few allocatable ones."""
    lacking = sorted("1 Too many pods" if name == "pods" else f"1 Insufficient {name}" for name in insufficient)
    return f"{_AVAILABLE.format(', '.join(lacking))} {_second(pod_spec, _HELPLESS if is_permanent else _NO_VICTIMS)}"


def gang_message(message: str, gang: str) -> str:
    """The message for a pod that would fit without its gang."""
    return f"{message} The pods of {gang} are placed together or not at all."


def capacity_problems(jobset: Obj, node: Obj) -> Iterator[str]:
    """Yield a message for each step whose pods cannot run on the node, and for each resource that concurrent steps exceed."""
    resources = NodeResources(node, {})
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        if why := obstacle(replicated["template"]["spec"]["template"]["spec"], node):
            yield f"step {replicated['name']}: {why}"
    for stage in stages(jobset):
        total: Requests = {}
        for _, count, requests in stage:
            add(total, requests, count)
        steps = " and ".join(f"{name} ({count} pods)" for name, count, _ in stage)
        for resource in resources.exceeding_capacity(total):
            what = "pods" if resource == PODS else f"of {resource}"
            yield f"{steps}: {total[resource]} {what} asked for, the node has {resources.allocatable(resource)}"


def report_too_large(cluster: Cluster, jobset: Obj, node: Obj) -> None:
    """Set, update or clear the condition of this JobSet's TrainJob, if it has changed."""
    owner = controller_of(jobset) or {}
    if owner.get("kind") != "TrainJob":
        return  # the condition is one of TrainJobs
    found = list(capacity_problems(jobset, node))
    try:
        trainjob = cluster.get(TRAINJOB, owner["name"], namespace_of(jobset))
    except NotFound:  # deleted: its JobSet goes with it
        return
    if not is_controlled_by(jobset, trainjob) or (not found and condition(trainjob, names.FITS_CLUSTER) is None):
        return  # of an earlier TrainJob, or there is nothing to report or to clear
    reason, message = ("ExceedsCluster", "this cluster cannot hold it: " + "; ".join(found)) if found else ("Fits", "")
    status = trainjob.setdefault("status", {})
    if set_condition(status, names.FITS_CLUSTER, not found, reason, message, now()):
        patch = {
            "status": {"conditions": status["conditions"]},
            "metadata": {"resourceVersion": trainjob["metadata"]["resourceVersion"]},
        }
        cluster.patch(TRAINJOB, owner["name"], patch, namespace_of(jobset), subresource="status")
        if found:
            record_event(cluster, trainjob, "Warning", reason, message, SOURCE)
