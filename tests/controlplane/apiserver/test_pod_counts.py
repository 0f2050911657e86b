"""One object asks for a limited number of pods; what the stored object has is not refused."""

from __future__ import annotations

from typing import Any

import pytest
from factories import job, jobset, replicated_job, runtime, trainjob
from senders import Sender

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOB, JOBSET, TRAINING_RUNTIME, TRAINJOB, Kind
from trainwright.controlplane.apiserver.admission.webhooks import MOST_PODS, check_pod_count
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

USER = WriteOptions(sender=Sender(is_administrator=True))
BILLIONS = 2**31 - 1


@pytest.mark.parametrize(
    ("kind", "obj", "pods"),
    [
        (JOBSET, jobset("x", replicated_job(replicas=BILLIONS)), BILLIONS),
        (JOBSET, jobset("x", replicated_job(replicas=101, parallelism=100)), 10_100),
        (JOBSET, jobset("x", replicated_job("a", replicas=6000), replicated_job("b", replicas=6000, parallelism=0)), 12_000),
        (JOB, job("x", parallelism=MOST_PODS + 1, completions=MOST_PODS + 1), MOST_PODS + 1),
        (TRAINING_RUNTIME, runtime("x", namespace="default", policy={"numNodes": BILLIONS}), BILLIONS),
        (CLUSTER_TRAINING_RUNTIME, runtime("x", replicated_job(replicas=1, parallelism=BILLIONS)), BILLIONS),
        (TRAINJOB, trainjob("x", nodes=BILLIONS, runtimeRef={"kind": "TrainingRuntime", "name": "rt"}), BILLIONS),
    ],
)
def test_an_object_that_asks_for_too_many_pods_is_refused(
    server: ResourceServer, kind: Kind, obj: dict[str, Any], pods: int
) -> None:
    with pytest.raises(Forbidden) as refused:
        server.create(kind, "default" if kind.namespaced else "", obj, USER)
    assert refused.value.message == (
        f'{kind.resource} "x" is forbidden: it asks for {pods} pods, and this cluster makes at most 10000 for it'
    )


def test_as_many_as_allowed_are_stored(server: ResourceServer) -> None:
    server.create(JOBSET, "default", jobset("x", replicated_job(replicas=100, parallelism=100)), USER)
    server.create(JOB, "default", job("x", parallelism=MOST_PODS, completions=BILLIONS), USER)


@pytest.mark.parametrize("kind", ["JobSet", "TrainingRuntime", "TrainJob"])
@pytest.mark.parametrize("spec", [None, {}, {"template": None}, {"replicatedJobs": [{"name": "a"}]}])
def test_objects_with_little_in_them_count_too(kind: str, spec: Any) -> None:
    check_pod_count({"kind": kind, "metadata": {"name": "x"}, "spec": spec}, None)


def test_an_object_may_keep_what_it_has_and_not_grow() -> None:
    large = {"kind": "JobSet", **jobset("x", replicated_job(replicas=20_000))}
    check_pod_count(large, large)
    with pytest.raises(Forbidden):
        check_pod_count({"kind": "JobSet", **jobset("x", replicated_job(replicas=20_001))}, large)
