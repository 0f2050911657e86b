"""Settings of a cached table, in the TrainJob that is made of them, and what is refused before one is submitted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from factories import catalogue_runtime, train_request

from trainwright.jobs import Identity
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.submit.resolve import IncompatibleRuntime, resolve

TABLE = {
    "dataset_uri": "cache://shop/orders",
    "metadata_loc": "s3://lake/orders/1.metadata.json",
    "command": ["torchrun", "t.py"],
}
RUNTIME = "torch-distributed-with-cache"


def initializer(**settings: Any) -> dict[str, Any]:
    request = train_request(**{"runtime": RUNTIME, **TABLE, **settings})
    made = trainjob_manifest(resolve(request, catalogue_runtime(RUNTIME)), Identity("o", "r", "s"), "default")
    found: dict[str, Any] = made["spec"]["initializer"]["dataset"]
    return found


def variables(**settings: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in initializer(**settings)["env"]}


def test_settings_become_the_variables_of_trainers_initializer() -> None:
    assert initializer()["storageUri"] == "cache://shop/orders"
    assert variables() == {"METADATA_LOC": TABLE["metadata_loc"]}
    given = variables(num_data_nodes="3", worker_mem="8Gi")
    assert given == {"METADATA_LOC": TABLE["metadata_loc"], "CLUSTER_SIZE": "4", "WORKER_MEM": "8Gi"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metadata_loc": ""}, "metadata_loc: required for cache://shop/orders"),
        ({"metadata_loc": "orders/1.metadata.json"}, "is neither a URI"),
        ({"dataset_uri": "cache://orders"}, "'cache://orders' is not the URI of a cached table: cache://SCHEMA/TABLE"),
        ({"worker_mem": "8 GB"}, "'8 GB' is not a quantity"),
        ({"worker_mem": "0"}, "'0' must be greater than zero"),
        ({"num_data_nodes": -1}, "num_data_nodes"),
        ({"dataset_uri": "hf://a/b"}, "metadata_loc: requires a cached table"),
        ({"dataset_uri": "", "metadata_loc": "", "worker_mem": "1Gi"}, "worker_mem: requires a cached table"),
    ],
)
def test_incomplete_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        train_request(**{**TABLE, **settings})


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("torch-distributed", "has no step 'dataset-initializer' that uses it"),
        ("trl-sft", "the dataset initializer of the runtime 'trl-sft' starts no data cache; use torch-distributed-with-cache"),
        ("torchtune-llama3.2-1b", "starts no data cache"),
    ],
)
def test_runtime_without_a_cache_is_refused(runtime: str, words: str) -> None:
    request = train_request(**{"runtime": runtime, **TABLE})
    with pytest.raises(IncompatibleRuntime, match=re.escape(words)):
        resolve(request, catalogue_runtime(runtime))
