"""Checks, before anything is created, whether the cluster can run a job: a node large enough for its pods, memory for its training,
a queue that exists.

A cluster may scale up, so a pod too large for its nodes is a warning. A single-node cluster is marked by an annotation of its node;
there it is an error. The memory of a training is an estimate: by default one that may not fit is warned of, and submitted all the
same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden, Invalid, NotFound, Problem
from trainwright.api.kinds import CONFIG_MAP, NODE
from trainwright.api.objects import Obj, annotations_of, name_of
from trainwright.api.quantities import parse_quantity, template_requests
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.reason_finder import NO_KUEUE
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.state.kubernetes_events import local_queues
from trainwright.jobs.submit.training_memory import Room, TrainingMemory, advice, gib, room_of, training_memory
from trainwright.jobs.trainers.trl import TrlTrainer
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.suggest import suggest

NODES_SECONDS = 60.0
_NONE = parse_quantity(0)
log = logging.getLogger(__name__)
WARN, FAIL, OFF = "warn", "fail", "off"
_TOLERANCE = 1.1
"""What an estimate may exceed the memory by before a training is said not to fit."""


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
    except ApiError as error:  # without permission to list nodes, the job is submitted unchecked
        log.debug("event=nodes_not_known error=%s", error.message)
        return []


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


def too_large(jobset: Obj, nodes: list[Obj]) -> Iterator[Problem]:
    """Yield a problem for each step and resource of which no node has enough; none without nodes."""
    if not nodes:  # unknown: nothing can be refused
        return
    for job in jobset["spec"].get("replicatedJobs") or []:
        for resource, requested in sorted(template_requests(job["template"]["spec"]["template"]["spec"]).items()):
            largest = max(
                (parse_quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0)) for node in nodes),
                default=_NONE,
            )
            if requested > largest:
                message = f"a pod of the step {job['name']} requests {requested} of {resource}; the largest node has {largest}"
                yield Problem("spec.trainer.resourcesPerNode", f"Invalid value: {message}")


@dataclass(frozen=True)
class MemoryEstimate:
    """What a process needs, and has if that is known; `advice` says what would fit."""

    needs: TrainingMemory
    room: Room | None
    advice: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it fits, as far as that is known."""
        return self.room is None or self.needs.total <= self.room.bytes * _TOLERANCE

    def __str__(self) -> str:
        if self.room is None:
            return f"the training needs {self.needs}; what its nodes have is not known"
        have = f"{self.room.whose}: {gib(self.room.bytes)}"
        if self.fits:
            return f"the training needs {self.needs}; {have}"
        ways = (
            f"; it would fit with {', or '.join(self.advice)}" if self.advice else "; no setting makes it fit, take other nodes"
        )
        return (
            f"the training needs {self.needs}, more than {have}{ways}. More nodes do not help: each process has the whole model"
        )


def estimate_memory(resolved: ResolvedRequest, nodes: Sequence[Obj]) -> MemoryEstimate | None:
    """Estimate the memory of a training; None for a program other than TRL's trainers, and without the shape of the model."""
    shape, trainer = resolved.request.data.model_shape, resolved.trainer
    if shape is None or not isinstance(trainer, TrlTrainer) or resolved.request.placement.memory_check == OFF:
        return None
    settings = trainer.settings.model_validate(resolved.request.settings)
    needs = training_memory(shape, settings)
    room = room_of(resolved.request, nodes, on_cpu=settings.cpu, num_nodes=resolved.nodes)
    found = MemoryEstimate(needs, room)
    if found.fits or room is None:
        return found
    return MemoryEstimate(needs, room, tuple(advice(shape, settings, room.bytes)))


def check_memory(resolved: ResolvedRequest, nodes: Sequence[Obj], name: str) -> str:
    """Return a warning if the training may not fit; empty otherwise. Raises Invalid instead if `memory_check` is fail."""
    found = estimate_memory(resolved, nodes)
    if found is None:
        return ""
    log.info("event=memory_estimated name=%s estimate=%r", name, str(found))
    if found.fits:
        return ""
    if resolved.request.placement.memory_check == FAIL:
        problem = Problem("settings", f"Invalid value: {found}; placement.memory_check=warn submits it all the same")
        raise Invalid.of("TrainJob", name, [problem], "trainer.kubeflow.org")
    return str(found)


class QueueNotFound(ValueError):
    """Nothing serves the queue of a job: it would wait for ever."""


def check_queue(client: JobsClient, cluster: Cluster, queue: str, namespace: str) -> None:
    """Check that a queue exists, in the namespace of the job; `cluster` is that of the client, with retries.

    An embedded cluster may have queues; one in this process is not checked. Without the permission, nothing is. Raises QueueNotFound,
    ApiError.
    """
    if not queue or not client.has_api_server():
        return
    try:
        known = local_queues(cluster, namespace)
        if known is None and client.is_embedded():
            _check_own_queues(cluster, queue)
        else:
            check_known_queue(known, queue, namespace)
    except Forbidden:  # the wait finds out
        return


def _check_own_queues(cluster: Cluster, queue: str) -> None:
    """Raise QueueNotFound on an embedded cluster without queues; one without this queue says so on the job."""
    namespace, name = names.QUEUES_CONFIG_MAP
    try:
        cluster.get(CONFIG_MAP, name, namespace)
    except NotFound:
        advice = "start the cluster with `trainwright up --queues FILE`, or leave queue_name out"
        raise QueueNotFound(
            f"placement.queue_name: {queue!r}: this cluster has no queues, so nothing starts the job: {advice}"
        ) from None


def check_known_queue(known: list[str] | None, queue: str, namespace: str) -> None:
    """Raise QueueNotFound unless the queue is among those of the namespace; they are None without Kueue. Pure."""
    if known is None:
        raise QueueNotFound(f"placement.queue_name: {queue!r}: {NO_KUEUE}: install Kueue, or leave queue_name out")
    if queue not in known:
        advice = suggest(queue, known) or "create a LocalQueue, or leave queue_name out"
        raise QueueNotFound(f"placement.queue_name: the namespace {namespace} has no LocalQueue {queue!r}: {advice}")
