"""How much memory a training process has: that of its GPU, or its part of the memory of its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, labels_of
from trainwright.api.quantities import parse_quantity
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.materialize.resources import cpu_count

_MIB = 2**20


@dataclass(frozen=True)
class Room:
    """Bytes for one process, and whose they are."""

    bytes: int
    whose: str


def room_of(request: TrainRequest, nodes: Sequence[Obj], *, on_cpu: bool, num_nodes: int) -> Room | None:
    """Return the memory for each process on the largest of these nodes, as far as their labels or the request tell; else None."""
    chosen = [node for node in nodes if _matches(node, request.placement.node_selector)]
    return _host_room(request, chosen, num_nodes) if on_cpu else _gpu_room(chosen)


def _matches(node: Obj, selector: Mapping[str, str]) -> bool:
    labels = labels_of(node)
    return all(labels.get(key) == value for key, value in selector.items())


def _gpu_room(nodes: Sequence[Obj]) -> Room | None:
    sizes = [int(text) for node in nodes if (text := labels_of(node).get(names.GPU_MEMORY_LABEL, "")).isdigit()]
    return Room(max(sizes) * _MIB, "the largest GPU of the cluster") if sizes else None


def _host_room(request: TrainRequest, nodes: Sequence[Obj], num_nodes: int) -> Room | None:
    resources = request.resources_per_node
    limits = resources.get("limits") or {}
    processes = request.num_proc_per_node or cpu_count(resources) or 1
    if "memory" in limits:
        return Room(int(parse_quantity(limits["memory"]).value // processes), "a process has by resources_per_node")
    largest = max((_memory(node) for node in nodes), default=0)
    if not largest:
        return None
    if any(annotations_of(node).get(names.SINGLE_NODE_ANNOTATION) for node in nodes):
        return Room(largest // (processes * num_nodes), "each process has on this machine")
    return Room(largest // processes, "each process has on the largest node")


def _memory(node: Obj) -> int:
    return int(parse_quantity(((node.get("status") or {}).get("allocatable") or {}).get("memory", 0)).value)
