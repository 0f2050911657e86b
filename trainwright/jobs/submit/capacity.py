"""Checks, before anything is created, whether any node is large enough for the pods of a job.

A cluster may scale up, so this is a warning. A single-node cluster is marked by an annotation of its node; there it is an error.
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


def check_capacity(cluster: Cluster, jobset: Obj) -> None:
    """Warn, or raise Invalid, if a pod requests more than any node has. Without permission to list nodes, nothing is checked.

    Nodes are cached for a minute for all submissions of a process.
    """
    nodes = nodes_of(cluster)
    problems = list(too_large(jobset, nodes))
    if problems and any(annotations_of(node).get(names.SINGLE_NODE_ANNOTATION) for node in nodes):
        raise Invalid.of("TrainJob", name_of(jobset), problems, "trainer.kubeflow.org")
    for problem in problems:
        log.warning("event=no_node_large_enough name=%s problem=%s", name_of(jobset), problem)


def nodes_of(cluster: Cluster) -> list[Obj]:
    """Return the nodes with their labels, annotations and allocatable resources; none without permission to list them."""
    try:
        return _nodes.of(cluster, getattr(cluster, "host", None))
    except ApiError as error:
        log.debug("event=nodes_not_known error=%s", error.message)
        return []


def too_large(jobset: Obj, nodes: list[Obj]) -> Iterator[Problem]:
    """Yield a problem for each step and resource of which no node has enough; none without nodes."""
    if not nodes:
        return
    for job in jobset["spec"].get("replicatedJobs") or []:
        for resource, requested in sorted(template_requests(job["template"]["spec"]["template"]["spec"]).items()):
            largest = max((_allocatable(node, resource) for node in nodes), default=_NONE)
            if requested > largest:
                message = f"a pod of the step {job['name']} requests {requested} of {resource}; the largest node has {largest}"
                yield Problem("spec.trainer.resourcesPerNode", f"Invalid value: {message}")


def _allocatable(node: Obj, resource: str) -> Quantity:
    return parse_quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0))


class _Nodes:
    """Caches the nodes of each API server, trimmed to name, labels, annotations and allocatable resources."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, list[Obj]]] = {}
        self._lock = threading.Lock()

    def of(self, cluster: Cluster, host: str | None) -> list[Obj]:
        """Return the nodes of a cluster. Not cached for a cluster without a host. Raises ApiError."""
        if host is None:
            return cluster.list(NODE).items
        with self._lock:
            when, nodes = self._known.get(host, (0.0, []))
        if not nodes or time.monotonic() - when > NODES_SECONDS:
            nodes = [_trim(node) for node in cluster.list(NODE).items]
            with self._lock:
                self._known[host] = (time.monotonic(), nodes)
        return nodes


def _trim(node: Obj) -> Obj:
    """Return the parts of a node that are cached."""
    metadata = {name: node["metadata"][name] for name in ("name", "labels", "annotations") if name in node["metadata"]}
    return {"metadata": metadata, "status": {"allocatable": (node.get("status") or {}).get("allocatable") or {}}}


_nodes = _Nodes()
