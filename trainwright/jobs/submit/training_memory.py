"""Estimates the memory of one training process, and finds out how much it has: that of its GPU, or its part of its node's memory.

The estimate uses the model's shape and the settings of TRL's trainers, for batches of the longest rows. Weights, gradients and
optimizer are known to the byte; what the passes forward and backward keep depends on kernels: those figures were fitted to measured
peaks of TRL on the CPU, see docs/finetune.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, labels_of
from trainwright.api.quantities import parse_quantity
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.trainers.trl import TrlSettings
from trainwright.materialize.resources import cpu_count

_MIB, GIB = 2**20, 2**30
_FLOAT, _HALF = 4, 2
_MOMENTS = 2
"""Of AdamW for a trained parameter, in its data type."""
_QUANTIZED = 0.516
"""Bytes for a parameter in 4 bits with constants that are quantized too (Dettmers et al. 2023, section 3)."""
_RUNTIME_GPU, _RUNTIME_CPU = int(1.2 * GIB), int(0.5 * GIB)
"""The CUDA context, kernels and buffers of NCCL; on a CPU the interpreter with torch and transformers."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that a process needs, by what needs them."""

    weights: int
    training: int
    """Gradients, once more in the buckets in which processes exchange them, the optimizer, and the adapter."""
    activations: int
    """What the forward pass keeps for the backward pass, and the logits."""
    runtime: int

    @property
    def total(self) -> int:
        return sum(getattr(self, part.name) for part in fields(self))

    def __str__(self) -> str:
        parts = ", ".join(f"{part.name} {gib(getattr(self, part.name))}" for part in fields(self))
        return f"about {gib(self.total)} for each process ({parts})"


def training_memory(shape: ModelShape, settings: TrlSettings) -> TrainingMemory:
    """Estimate what a process of this training needs, on a GPU unless `settings.cpu`."""
    is_full = settings.method == "full"
    width = _HALF if settings.dtype == "bfloat16" else _FLOAT
    weights = _quantized(shape) if settings.method == "qlora" else width * shape.parameters
    trained = shape.parameters if is_full else shape.adapter(settings.lora_rank)
    each = width * (2 + _MOMENTS) if is_full else _FLOAT * (3 + _MOMENTS)  # PEFT trains adapters in float32, beside any weights
    return TrainingMemory(
        weights=weights * (2 if settings.has_second_copy else 1),
        training=trained * each,
        activations=_activations(shape, settings),
        runtime=_RUNTIME_CPU if settings.cpu else _RUNTIME_GPU,
    )


def _quantized(shape: ModelShape) -> int:
    kept = min(shape.embeddings, shape.parameters)
    return int(_QUANTIZED * (shape.parameters - kept)) + _HALF * kept


def _activations(shape: ModelShape, settings: TrlSettings) -> int:
    """What a pass over one batch keeps. On a GPU TRL computes in bfloat16 and computes the layers again in the backward pass."""
    length = min(settings.max_length, shape.most_tokens or settings.max_length)
    tokens = settings.batch_size * length * settings.texts_of_row
    width = _FLOAT if settings.cpu else _HALF
    values = _values_of_layer(shape, settings, length)
    logits = tokens * shape.vocabulary * (width + 2 * _FLOAT)  # and in float32 for the loss, and their gradient
    if settings.cpu:
        return tokens * values * width * shape.layers + logits
    return tokens * (values * width + shape.layers * shape.hidden * _FLOAT) + logits


def _values_of_layer(shape: ModelShape, settings: TrlSettings, length: int) -> int:
    """Values that a layer keeps for each token."""
    norms = 7 * shape.hidden
    attention = 7 * shape.queries + 7 * shape.key_values  # the projections, turned by their positions, and the output
    feed_forward = 4 * shape.intermediate * shape.active_experts
    scores = 2 * shape.heads * length if settings.cpu else 0  # kernels of GPUs do not keep them
    inputs = 5 * shape.hidden + shape.queries + shape.intermediate * shape.active_experts
    adapter = 0 if settings.method == "full" else 4 * inputs  # each linear layer's input once more, with dropout
    return norms + attention + feed_forward + scores + adapter


def advice(shape: ModelShape, settings: TrlSettings, room: int) -> list[str]:
    """Return changes of settings with which a process would fit into `room` bytes, the least first; empty if none of them does."""
    found = []
    for change in _changes(settings):
        changed = settings.model_copy(update=change)
        needs = training_memory(shape, changed).total
        if needs <= room:
            words = " and ".join(f"{name} {value}" for name, value in change.items())
            found.append(f"{words} ({gib(needs)})")
    return found[:3]


def _changes(settings: TrlSettings) -> list[dict[str, Any]]:
    rows = settings.batch_size
    parts = [parts for parts in range(2, rows // settings.least_rows + 1) if rows % parts == 0]  # as many rows for each update
    smaller = [{"batch_size": rows // each, "gradient_accumulation": settings.gradient_accumulation * each} for each in parts]
    shortest = smaller[-1:] or [{}]
    lengths = [{"max_length": length} for length in (settings.max_length // 2, settings.max_length // 4) if length >= 256]
    methods = {"full": ["lora", "qlora"], "lora": ["qlora"], "qlora": []}[settings.method]
    others = [{"method": method} for method in methods if not (settings.cpu and method == "qlora")]
    both = [{**method, **shortest[0]} for method in others if shortest[0]]
    return [*smaller, *lengths, *others, *both]


def gib(size: float) -> str:
    """Return a number of bytes in GiB, as people compare memory; small ones in MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / _MIB:.0f} MiB"


@dataclass(frozen=True)
class Room:
    """Bytes for one process, and whose they are."""

    bytes: int
    whose: str


def room_of(request: TrainRequest, nodes: Sequence[Obj], *, on_cpu: bool, num_nodes: int) -> Room | None:
    """Return the memory for each process on the largest of these nodes, as far as their labels or the request tell; else None."""
    selector = request.placement.node_selector
    chosen = [node for node in nodes if all(labels_of(node).get(key) == value for key, value in selector.items())]
    return _host_room(request, chosen, num_nodes) if on_cpu else _gpu_room(chosen)


def _gpu_room(nodes: Sequence[Obj]) -> Room | None:
    sizes = [int(text) for node in nodes if (text := labels_of(node).get(names.GPU_MEMORY_LABEL, "")).isdigit()]
    return Room(max(sizes) * _MIB, "the largest GPU of the cluster") if sizes else None


def _host_room(request: TrainRequest, nodes: Sequence[Obj], num_nodes: int) -> Room | None:
    resources = request.resources_per_node
    limits = resources.get("limits") or {}
    processes = request.num_proc_per_node or cpu_count(resources) or 1
    if "memory" in limits:
        return Room(int(parse_quantity(limits["memory"]).value // processes), "a process has by resources_per_node")
    allocatable = ((node.get("status") or {}).get("allocatable") or {} for node in nodes)
    largest = max((int(parse_quantity(each.get("memory", 0)).value) for each in allocatable), default=0)
    if not largest:
        return None
    if any(annotations_of(node).get(names.SINGLE_NODE_ANNOTATION) for node in nodes):
        return Room(largest // (processes * num_nodes), "each process has on this machine")
    return Room(largest // processes, "each process has on the largest node")
