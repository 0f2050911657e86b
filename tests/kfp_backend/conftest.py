"""One embedded cluster for a module, with the backend that runs steps against it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from backend import Backend
from step_cluster import StepCluster, step_cluster


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepCluster]:
    with step_cluster(tmp_path_factory.mktemp("kfp-backend")) as cluster:
        yield cluster


@pytest.fixture
def backend(steps: StepCluster) -> Iterator[Backend]:
    """Runs of one test. None of their processes outlives it."""
    backend = Backend(steps.cluster, steps.kubeconfig, steps.folder / "runs")
    yield backend
    backend.close()
