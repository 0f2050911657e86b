"""Fixtures: a cluster in memory without controllers, where the test writes the status of jobs and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from factories import cluster_with_runtimes, pod, program_request

from trainwright.api.kinds import POD, TRAINJOB
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with cluster_with_runtimes() as cluster:
        yield cluster


@pytest.fixture
def job(cluster: EmbeddedCluster) -> dict[str, Any]:
    """A TrainJob that a step has submitted."""
    return submit_or_adopt(Submission(cluster, program_request(), Identity("o", "r", "s"), "default")).trainjob


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
        made = cluster.create(pod(f"{name}-{step}-0-{index}-abcde", labels=labels, container={"name": "node"}))
        if not status:
            return made
        return cluster.patch(POD, made["metadata"]["name"], {"status": status}, "default", subresource="status")

    return add


def current(cluster: Cluster, trainjob: dict[str, Any]) -> dict[str, Any]:
    """Return a TrainJob as it is now."""
    return cluster.get(TRAINJOB, trainjob["metadata"]["name"], "default")
