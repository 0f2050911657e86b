"""Fixture: a cluster with a node, and a runtime `once` whose programs are not tried again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jobset_only import running_plane, runtime_once

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.cluster import Cluster
from trainwright.cluster.jobset_mode import JobSetCluster
from trainwright.controlplane.plane import ControlPlane
from trainwright.jobs import Identity


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("faults")
    with runtime_once(folder), running_plane(folder, trainjobs=True) as plane:
        yield plane


def jobs_of(plane: ControlPlane, step: Identity, *, jobset_only: bool = False) -> list[dict[str, Any]]:
    cluster: Cluster = JobSetCluster(plane.cluster) if jobset_only else plane.cluster
    jobs = cluster.list(TRAINJOB, "default").items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == str(step)]
