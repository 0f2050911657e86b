"""A training whose model is too large for the nodes is warned of before it is submitted, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from factories import train_request

from trainwright.api import names
from trainwright.api.errors import Invalid
from trainwright.api.kinds import NODE, TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.request.model_shape import ModelShape

STEP = Identity("kfp", "run", "train")
SHAPE = ModelShape(
    parameters=8_030_000_000,
    hidden=4096,
    layers=32,
    vocabulary=128256,
    intermediate=14336,
    heads=32,
    queries=4096,
    key_values=1024,
    most_tokens=512,
    embeddings=1_050_000_000,
).as_json()


def add_node(cluster: EmbeddedCluster, *, memory: str = "64Gi", gpu_mib: int = 0, whole: bool = False) -> None:
    labels = {names.GPU_MEMORY_LABEL: str(gpu_mib)} if gpu_mib else {}
    annotations = {names.SINGLE_NODE_ANNOTATION: "true"} if whole else {}
    metadata = {"name": "here", "labels": {**labels, "zone": "a"}, "annotations": annotations}
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    amounts = {"memory": memory, "cpu": "16", **({"nvidia.com/gpu": "8"} if gpu_mib else {})}
    cluster.patch(NODE, "here", {"status": {"allocatable": amounts}}, subresource="status")


def submit(cluster: EmbeddedCluster, step: Identity = STEP, **settings: Any) -> list[str]:
    """The warnings of a submission."""
    warnings: list[str] = []
    request = train_request(**{"runtime": "trl-sft", "model_shape": SHAPE, "num_proc_per_node": 1, **settings})
    submit_or_adopt(Submission(cluster, request, step, "default"), on_warning=warnings.append)
    return [text for text in warnings if "GiB" in text]


def test_a_model_that_is_too_large_is_warned_of_with_what_would_fit(cluster: EmbeddedCluster) -> None:
    add_node(cluster, gpu_mib=24576)
    (warning,) = submit(cluster, resources_per_node={"nvidia.com/gpu": 1})
    assert "more than the largest GPU of the cluster: 24.0 GiB" in warning
    assert "it would fit with method qlora" in warning
    assert "More nodes do not help" in warning
    assert len(cluster.list(TRAINJOB).items) == 1, "an estimate stops no training"


def test_a_model_that_is_too_large_is_refused_with_memory_check_fail(cluster: EmbeddedCluster) -> None:
    add_node(cluster, gpu_mib=24576)
    with pytest.raises(Invalid, match="memory_check=warn submits it all the same"):
        submit(cluster, resources_per_node={"nvidia.com/gpu": 1}, memory_check="fail")
    assert not cluster.list(TRAINJOB).items
    assert submit(cluster, resources_per_node={"nvidia.com/gpu": 1}, memory_check="off") == []


def test_nodes_of_one_machine_share_its_memory(cluster: EmbeddedCluster) -> None:
    add_node(cluster, memory="120Gi", whole=True)
    on_cpu = {"settings": {"cpu": True, "batch_size": 1}}
    assert submit(cluster, Identity("kfp", "one", "train"), **on_cpu) == []
    (warning,) = submit(cluster, Identity("kfp", "four", "train"), num_nodes=4, **on_cpu)
    assert "each process has on this machine: 30.0 GiB" in warning
