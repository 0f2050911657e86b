"""Fixture: a cluster with a node, and a runtime `once` whose programs are not tried again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trainwright.api import names
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.controlplane.gates import FeatureGates
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane
from trainwright.jobs import Identity


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(Home(tmp_path_factory.mktemp("faults") / "home"), gates=FeatureGates())
    plane.start()
    runtime = plane.cluster.get(CLUSTER_TRAINING_RUNTIME, "torch-distributed")
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = 0
    job["template"]["spec"]["restartPolicy"] = "Never"
    plane.cluster.create({**runtime, "metadata": {"name": "once"}})
    yield plane
    plane.stop(2)


def jobs_of(plane: ControlPlane, step: Identity) -> list[dict[str, Any]]:
    jobs = plane.cluster.list(TRAINJOB, "default").items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == str(step)]
