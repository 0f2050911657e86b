"""From a request to a manifest: the workspace, the digest, and requests that are refused."""

from __future__ import annotations

from typing import Any

from factories import catalogue_runtime, train_request

from trainwright.jobs import Identity, trainjob_manifest
from trainwright.jobs.submit.resolve import resolve

STEP = Identity("kfp", "run", "train")


def test_everything_in_a_request_reaches_the_manifest() -> None:
    request = train_request(
        runtime="trl-sft",
        dataset_uri="hf://org/data",
        dataset_env={"A": "1"},
        dataset_secret="hub",
        model_uri="hf://org/model",
        image="img",
        command=["c"],
        args=["a"],
        env={"B": "2"},
        num_nodes=2,
        num_proc_per_node=3,
        resources_per_node={"limits": {"cpu": "1"}},
        run_timeout_seconds=60,
        labels={"kueue.x-k8s.io/queue-name": "q", "trainwright.dev/run": "not-yours"},
    )
    manifest = trainjob_manifest(resolve(request, catalogue_runtime("trl-sft")), STEP, "team", attempt=2)
    spec = manifest["spec"]
    assert spec["initializer"] == {
        "dataset": {"storageUri": "hf://org/data", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "hub"}},
        "model": {"storageUri": "hf://org/model"},
    }
    assert spec["trainer"] == {
        "image": "img",
        "command": ["c"],
        "args": ["a"],
        "env": [{"name": "B", "value": "2"}],
        "numNodes": 2,
        "numProcPerNode": 3,
        "resourcesPerNode": {"limits": {"cpu": "1"}},
    }
    assert spec["activeDeadlineSeconds"] == 60
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert manifest["metadata"]["labels"]["trainwright.dev/run"] == "run"
    assert manifest["metadata"]["name"].endswith("-2")


def test_the_digest_tells_requests_apart_but_not_generations() -> None:
    def digest(attempt: int = 1, **fields: Any) -> str:
        request = train_request(runtime="trl-sft", **fields)
        manifest = trainjob_manifest(resolve(request, catalogue_runtime("trl-sft")), STEP, "team", attempt)
        return str(manifest["metadata"]["annotations"]["trainwright.dev/spec-digest"])

    assert digest() == digest(attempt=2) == digest(labels={"a": "b"})
    assert (
        len({digest(), digest(args=["x"]), digest(workspace="pvc://a"), digest(workspace="pvc://b"), digest(env={"A": ""})}) == 5
    )
