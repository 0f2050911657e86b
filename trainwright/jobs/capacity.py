"""Whether any node could hold the pods of a job, were it empty: said before anything is created.

A cluster may grow, so there it is a warning. A cluster that is one machine says so on its node; there it is a refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.kinds import NODE
from trainwright.api.objects import Obj, annotations_of, name_of
from trainwright.api.quantities import Quantity, parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.materialize.pod_requests import template_requests

_NONE = parse_quantity(0)
log = logging.getLogger(__name__)


def check_capacity(cluster: Cluster, jobset: Obj) -> None:
    """Warn, or raise Invalid, where a pod asks for more than every node has. Who may not list nodes is told nothing."""
    try:
        nodes = cluster.list(NODE).items
    except ApiError as error:
        log.debug("nodes are not looked at error=%s", error.message)
        return
    problems = list(too_large(jobset, nodes))
    if problems and any(names.WHOLE_CLUSTER_ANNOTATION in annotations_of(node) for node in nodes):
        raise Invalid.of("TrainJob", name_of(jobset), problems, "trainer.kubeflow.org")
    for problem in problems:
        log.warning("no node can hold the job now name=%s %s", name_of(jobset), problem)


def too_large(jobset: Obj, nodes: list[Obj]) -> Iterator[Problem]:
    """One problem for each step and resource that no node has enough of; none without nodes."""
    if not nodes:
        return
    for job in jobset["spec"].get("replicatedJobs") or []:
        for resource, wanted in sorted(template_requests(job["template"]["spec"]["template"]["spec"]).items()):
            largest = max((_allocatable(node, resource) for node in nodes), default=_NONE)
            if wanted > largest:
                message = f"a pod of the step {job['name']} asks for {wanted} of {resource}; the largest node has {largest}"
                yield Problem("spec.trainer.resourcesPerNode", f"Invalid value: {message}")


def _allocatable(node: Obj, resource: str) -> Quantity:
    return parse_quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0))
