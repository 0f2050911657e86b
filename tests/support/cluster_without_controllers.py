"""Fixtures: an API server in memory where nobody acts: what becomes of a job is written by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainwright.api.kinds import POD, TRAINJOB
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import TrainRequest
from trainwright.runtimes import bundled_runtimes


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    store = Store(":memory:")
    cluster = EmbeddedCluster(ResourceServer(store))
    for runtime in bundled_runtimes():
        cluster.create(runtime)
    yield cluster
    cluster.close()
    store.close()


@pytest.fixture
def request_of() -> Callable[..., TrainRequest]:
    """A request for a program of one line; fields as they are given."""

    def make(**fields: Any) -> TrainRequest:
        return TrainRequest(**{"runtime": "torch-distributed", "command": ["true"], **fields})

    return make


@pytest.fixture
def set_status(cluster: EmbeddedCluster) -> Callable[..., Any]:
    """Write a TrainJob's status, as its controller would."""

    def write(trainjob: dict[str, Any], *conditions: str, **status: Any) -> dict[str, Any]:
        entries = [
            {
                "type": name,
                "status": "True",
                "reason": f"{name}Reason",
                "message": f"the {name} message",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for name in conditions
        ]
        patch = {"status": {"conditions": entries, **status}}
        return cluster.patch(TRAINJOB, trainjob["metadata"]["name"], patch, "default", subresource="status")

    return write


@pytest.fixture
def add_pod(cluster: EmbeddedCluster) -> Callable[..., Any]:
    """A pod of a TrainJob with a status."""

    def add(trainjob: dict[str, Any], index: int = 0, step: str = "node", **status: Any) -> dict[str, Any]:
        name = trainjob["metadata"]["name"]
        labels = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": step,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        metadata = {"name": f"{name}-{step}-0-{index}-abcde", "namespace": "default", "labels": labels}
        spec = {"containers": [{"name": "node", "image": "example.com/img:1"}]}
        made = cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if not status:
            return made
        return cluster.patch(POD, made["metadata"]["name"], {"status": status}, "default", subresource="status")

    return add
