"""`/metrics` of an embedded control plane: what its controllers did for a TrainJob, and in which phase that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from factories import trainjob
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import wait_for

pytestmark = pytest.mark.medium


def sample(text: str, series: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{series} ")]
    return float(line.rpartition(" ")[2])


def test_a_job_that_ran_is_counted(plane: ControlPlane, metrics: Callable[[], str]) -> None:
    wait_for(plane.cluster, plane.cluster.create(trainjob(trainer={"command": ["true"]})))

    def finished() -> str:
        text = metrics()
        done = sample(text, 'trainwright_trainjobs{phase="Succeeded"}') and sample(text, 'trainwright_pods{phase="Succeeded"}')
        return text if done else ""

    text = eventually(finished)
    for controller in ("trainjob", "jobset", "job"):
        assert sample(text, f'trainwright_reconcile_total{{controller="{controller}",result="success"}}') >= 1
        assert sample(text, f'trainwright_reconcile_seconds_count{{controller="{controller}"}}') >= 1
    assert sample(text, 'trainwright_reconcile_total{controller="trainjob",result="panic"}') == 0


@pytest.mark.parametrize("kind", [TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME], ids=lambda kind: kind.kind)
def test_a_runtime_that_an_older_trainer_marked_can_be_deleted(nodeless: ControlPlane, kind: Any) -> None:
    spec = nodeless.cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")["spec"]
    metadata = {"name": "old", "finalizers": [names.RUNTIME_IN_USE]} | ({"namespace": "default"} if kind.namespaced else {})
    nodeless.cluster.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})
    namespace = "default" if kind.namespaced else None

    def is_free() -> bool:
        return not nodeless.cluster.get(kind, "old", namespace)["metadata"].get("finalizers")

    assert eventually(is_free)
    nodeless.cluster.delete(kind, "old", namespace)
    with pytest.raises(NotFound):
        nodeless.cluster.get(kind, "old", namespace)
