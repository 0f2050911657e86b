"""Which pods of a training have started once: from pods, from Jobs whose pods are gone, from the counters of the JobSet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from factories import cluster_with_runtimes, job, jobset, pod, replicated_job, trainjob

from trainwright.api.kinds import JOB, POD, TRAINJOB
from trainwright.api.objects import name_of, owner_reference
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.state.started_pods import GangStart, StartedPods, expected_places

RUNNING = {"name": "node", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


NODE = replicated_job("node", parallelism=2, completions=2)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([NODE], {"node-0-0", "node-0-1"}),
        ([replicated_job("node", replicas=2, parallelism=1, completions=1)], {"node-0-0", "node-1-0"}),
        ([replicated_job("node")], {"node-0-0"}),
        ([replicated_job("node", parallelism=4, completions=2)], {"node-0-0", "node-0-1"}),
        ([replicated_job("node", parallelism=2, completions=6)], {"node-0-0", "node-0-1"}),
        ([replicated_job("node", replicas=0), replicated_job("launcher")], {"launcher-0-0"}),
        ([replicated_job("node", parallelism=0, completions=0)], set()),
        ([replicated_job("dataset-initializer"), replicated_job("model-initializer"), replicated_job("node")], {"node-0-0"}),
        (
            [
                replicated_job("dataset-initializer"),
                {**NODE, "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]},
                {**replicated_job("launcher"), "dependsOn": [{"name": "node", "status": "Ready"}]},
                {**replicated_job("report"), "dependsOn": [{"name": "launcher", "status": "Complete"}]},
                {**replicated_job("after-report"), "dependsOn": [{"name": "report", "status": "Ready"}]},
            ],
            {"node-0-0", "node-0-1", "launcher-0-0"},
        ),
        ([replicated_job("node", completionMode="NonIndexed", parallelism=2)], None),
    ],
)
def test_expected_pods_are_those_that_train_together(steps: list[dict[str, Any]], expected: set[str] | None) -> None:
    found = expected_places(jobset("js", *steps))
    assert (None if found is None else set(map(str, found))) == expected


class Training:
    """A TrainJob of two pods on a cluster without controllers."""

    def __init__(self, cluster: EmbeddedCluster, *steps: dict[str, Any]):
        self.cluster = cluster
        self.trainjob = cluster.create(trainjob("t"))
        owned = {"ownerReferences": [owner_reference(self.trainjob)]}
        self.jobset = cluster.create(jobset("t", *(steps or (NODE,)), metadata=owned))
        self.started = StartedPods(cluster, self.trainjob)

    def add_pod(self, index: int, container: dict[str, Any], suffix: str = "abcde") -> None:
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "t",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        made = self.cluster.create(pod(f"t-node-0-{index}-{suffix}", labels=labels, container={"name": "node"}))
        status = {
            "phase": "Running",
            "containerStatuses": [{"image": "i", "imageID": "", "ready": True, "restartCount": 0, **container}],
        }
        self.cluster.patch(POD, name_of(made), {"status": status}, "default", subresource="status")

    def read(self) -> GangStart | None:
        return self.started.read(self.cluster.list(POD, "default").items)

    def missing(self) -> list[str]:
        start = self.read()
        assert start is not None
        return list(map(str, start.missing))


@pytest.fixture
def training() -> Iterator[Training]:
    with cluster_with_runtimes() as cluster:
        yield Training(cluster)


def test_rank_whose_pod_was_deleted_is_read_from_its_job(training: Training) -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "t", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    made = training.cluster.create(job("t-node-0", labels=labels, parallelism=2, completions=2, completionMode="Indexed"))
    training.add_pod(0, RUNNING)
    assert training.missing() == ["node-0-1"]
    status = {"status": {"completedIndexes": "1", "succeeded": 1}}
    training.cluster.patch(JOB, name_of(made), status, "default", subresource="status")
    assert training.missing() == []


def test_jobset_of_an_earlier_job_is_not_taken_for_this_ones(training: Training) -> None:
    training.cluster.delete(TRAINJOB, "t", "default")
    again = training.cluster.create(trainjob("t"))
    assert StartedPods(training.cluster, again).read([]) is None
