"""Fixture: a cluster with a node, and a runtime `once` whose programs are not tried again.

The embedded one, or any other whose kubeconfig TRAINWRIGHT_TEST_KUBECONFIG names: with a token for its user, Trainer and JobSet.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import other_cluster
from support.jobset_only_cluster import plane_of_jobsets, runtime_once_in_catalogue

from trainwright.api import names
from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.cluster import Cluster, connect
from trainwright.jobs import Identity
from trainwright.runtimes.bundled import bundled_runtime
from trainwright.submission.jobset_mode import JobSetCluster


@dataclass(frozen=True)
class Faulted:
    """The cluster as it is, and the way to it that is made faulty. `mark` tells this run's jobs from those of earlier ones."""

    cluster: Cluster
    kubeconfig: Path
    mark: str = ""

    def step(self, run: str) -> Identity:
        return Identity("kfp", f"{run}{self.mark}", "train")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulted]:
    folder = tmp_path_factory.mktemp("faults")
    with runtime_once_in_catalogue(folder):
        other = other_cluster()
        if other is not None:
            cluster = connect(other)
            with suppress(AlreadyExists):
                cluster.create(bundled_runtime("once") or {})
            yield Faulted(cluster, other, f"-{secrets.token_hex(3)}")
            return
        with plane_of_jobsets(folder, trainjobs=True) as embedded:
            yield Faulted(embedded.cluster, embedded._home.kubeconfig)


def jobs_of(plane: Faulted, step: Identity, *, jobset_only: bool = False) -> list[dict[str, Any]]:
    cluster: Cluster = JobSetCluster(plane.cluster) if jobset_only else plane.cluster
    jobs = cluster.list(TRAINJOB, "default").items
    return [job for job in jobs if annotations_of(job).get(names.OWNER_ANNOTATION) == str(step)]
