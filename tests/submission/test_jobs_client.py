"""A framework that Trainer does not know is refused where Trainer's own controller would build the pods."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, cluster_in_memory, jobset, replicated_job, trainjob
from serving_cluster import BOTH, Serving, lease

from trainwright.api.errors import Forbidden, Invalid
from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import SOURCE_KIND_LABEL
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.submission.jobs_client import JobsClient, PolicyMissing
from trainwright.submission.jobset_mode import JobSetCluster


class Remote(Serving, KubernetesCluster):
    """An API server elsewhere."""


def check(client: JobsClient, nodes: int = 2) -> None:
    client.check_plugins(trainjob(nodes=nodes), catalogue_runtime("tensorflow-distributed"), "team")


@pytest.mark.parametrize(
    ("leases", "reason"),
    [
        ([lease(3)], "the Lease kubeflow-system/trainer.kubeflow.org is renewed"),
        ([lease(3), lease(3, "trainwright-controller")], "the Lease kubeflow-system/trainer.kubeflow.org is renewed"),
        ([], "there is no Lease"),
        (Forbidden("no"), "a permission is missing"),
    ],
    ids=["upstream", "both", "none", "forbidden"],
)
def test_nodes_that_would_train_alone_are_refused_with_advice(leases: Any, reason: str) -> None:
    with pytest.raises(PolicyMissing) as refused:
        check(JobsClient(Remote(BOTH, leases)))
    for words in (reason, "no policy for tensorflow", "mode jobset", "trainwright controller", "TF_CONFIG"):
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("client", "nodes"),
    [
        (JobsClient(Remote(BOTH, [lease(3, "trainwright-controller")])), 2),
        (JobsClient(Remote(BOTH, [lease(3, "trainwright-controller-team")])), 2),
        (JobsClient(Remote(BOTH, [lease(3)], version="v1.33.0+trainwright")), 2),
        (JobSetCluster(Remote(BOTH, [lease(3)])), 2),
        (JobsClient(Remote(BOTH, [lease(3)])), 1),
    ],
    ids=["own", "own of the namespace", "embedded", "jobset", "one node"],
)
def test_jobs_whose_pods_trainwright_builds_are_accepted(client: JobsClient, nodes: int) -> None:
    check(client, nodes)


@pytest.mark.parametrize(
    ("labels", "words"),
    [({SOURCE_KIND_LABEL: "TrainJob"}, "was submitted in jobset mode.*, or use the mode jobset"), ({}, "was not created for")],
    ids=["jobset mode", "by hand"],
)
def test_trainjob_with_the_name_of_another_jobset_is_refused(labels: dict[str, str], words: str) -> None:
    taken = jobset("taken", replicated_job(), metadata={"labels": labels})
    with cluster_in_memory(catalogue_runtime("torch-distributed"), taken) as cluster:
        client = JobsClient(cluster)
        with pytest.raises(Invalid, match=f"the JobSet default/taken exists and {words}"):
            client.create(trainjob("taken"))
        assert client.create(trainjob("free"))
        assert [job["metadata"]["name"] for job in cluster.list(TRAINJOB, "default").items] == ["free"]
