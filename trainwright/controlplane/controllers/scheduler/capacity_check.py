"""Reports a TrainJob that does not fit even on the empty node, by a condition and an Event, before any deadline."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.conditions import condition, set_condition
from trainwright.api.errors import NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, controller_of, is_controlled_by, namespace_of
from trainwright.api.times import now
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.events import record_event
from trainwright.controlplane.controllers.scheduler.gangs import stages
from trainwright.controlplane.controllers.scheduler.messages import SOURCE
from trainwright.controlplane.controllers.scheduler.node_filters import obstacle
from trainwright.controlplane.controllers.scheduler.node_resources import PODS, NodeResources, add
from trainwright.materialize.pod_requests import Requests


def problems(jobset: Obj, node: Obj) -> Iterator[str]:
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


def report(cluster: Cluster, jobset: Obj, node: Obj) -> None:
    """Set, update or clear the condition of this JobSet's TrainJob, if it has changed."""
    owner = controller_of(jobset) or {}
    if owner.get("kind") != "TrainJob":
        return
    found = list(problems(jobset, node))
    try:
        trainjob = cluster.get(TRAINJOB, owner["name"], namespace_of(jobset))
    except NotFound:
        return
    if not is_controlled_by(jobset, trainjob) or (not found and condition(trainjob, names.FITS_CLUSTER) is None):
        return
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
