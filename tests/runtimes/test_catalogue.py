"""The bundled runtimes that have an upstream namesake are the same runtime: equal as data, and materialized alike."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from factories import catalogue_runtime, trainjob
from support.shared_folder import shared_folder

from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime, bundled_runtimes

STOCK = (
    "deepspeed-distributed",
    "jax-distributed",
    "mlx-distributed",
    "torch-distributed",
    "torch-distributed-with-cache",
    "torchtune-llama3.2-1b",
    "torchtune-llama3.2-3b",
    "torchtune-qwen2.5-1.5b",
    "xgboost-distributed",
)


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_runtime_is_what_upstream_ships(name: str) -> None:
    files = sorted(shared_folder("upstream/trainer/runtimes").rglob("*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text("utf-8")) if document]
    upstream = {document["metadata"]["name"]: document for document in documents}
    assert set(upstream) == set(STOCK)
    ours = bundled_runtime(name)
    if name == "torch-distributed-with-cache":
        _let_it_have_a_dataset(upstream[name])
    assert ours == upstream[name]
    job = trainjob(runtime=name, nodes=2, metadata={"uid": "1"})
    assert ours is not None
    assert materialize(job, ours) == materialize(job, upstream[name])


def _let_it_have_a_dataset(runtime: dict[str, Any]) -> None:
    """Add what ours has: the mount that Trainer's webhook asks for, and no retry of a cache that cannot be started."""
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    failed = {"containerName": "dataset-initializer", "operator": "In", "values": [2]}
    job |= {"backoffLimit": 3, "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": failed}]}}
    pod = job["template"]["spec"]
    pod |= {"restartPolicy": "Never", "volumes": [{"name": "initializer", "emptyDir": {}}]}
    pod["containers"][0]["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]


@pytest.mark.parametrize("name", [runtime["metadata"]["name"] for runtime in bundled_runtimes()])
def test_every_bundled_runtime_builds(name: str) -> None:
    job = trainjob(runtime=name, nodes=2, metadata={"uid": "1"})
    assert materialize(job, catalogue_runtime(name))[-1]["kind"] == "JobSet"
