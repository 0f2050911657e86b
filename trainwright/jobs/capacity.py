"""Whether any node could hold the pods of a job, were it empty: said before anything is created.

A cluster may grow, so there it is a warning. A cluster that is one machine says so on its node; there it is a refusal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.kinds import NODE
from trainwright.api.objects import Obj, annotations_of, name_of
from trainwright.api.quantities import Quantity, parse_quantity
from trainwright.cluster.protocol import Cluster
from trainwright.materialize.pod_requests import template_requests

NODES_SECONDS = 60.0
_NONE = parse_quantity(0)
log = logging.getLogger(__name__)


def check_capacity(cluster: Cluster, jobset: Obj, asked: Cluster | None = None) -> None:
    """Warn, or raise Invalid, where a pod asks for more than every node has. Who may not list nodes is told nothing.

    `asked` is the cluster behind one that has more patience. Nodes are listed once a minute for all submissions of a process.
    """
    try:
        nodes = _nodes.of(cluster, getattr(asked or cluster, "host", None))
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


class _Nodes:
    """The nodes of each host, as long as they are fresh: what a node can hold at most, and little else, is read of them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, list[Obj]]] = {}
        self._lock = threading.Lock()

    def of(self, cluster: Cluster, host: str | None) -> list[Obj]:
        """Raises ApiError. A cluster without a host is asked every time."""
        if host is None:
            return cluster.list(NODE).items
        with self._lock:
            when, nodes = self._known.get(host, (0.0, []))
        if not nodes or time.monotonic() - when > NODES_SECONDS:
            nodes = [_kept(node) for node in cluster.list(NODE).items]
            with self._lock:
                self._known[host] = (time.monotonic(), nodes)
        return nodes


def _kept(node: Obj) -> Obj:
    """What is kept of it."""
    metadata = {name: node["metadata"][name] for name in ("name", "annotations") if name in node["metadata"]}
    return {"metadata": metadata, "status": {"allocatable": (node.get("status") or {}).get("allocatable") or {}}}


_nodes = _Nodes()
