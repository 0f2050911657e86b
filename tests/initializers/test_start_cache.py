"""The initializer starts a cache, takes the one that its job has, and fails with the reason of a pod that has failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from factories import catalogue_runtime, cluster_with_runtimes, pod

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import JOBSET, POD, SECRET, SERVICE, TRAINJOB
from trainwright.api.objects import owner_reference
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.datacache.settings import CacheError, CacheSettings
from trainwright.initializers import start_cache as module
from trainwright.initializers.start_cache import start_cache
from trainwright.materialize import RandomKeys, Settings, materialize
from trainwright.trainer.data_cache import data_cache

RUNTIME = "torch-distributed-with-cache"
SETTINGS = CacheSettings("orders", "shop", "orders", "/data/orders", "ghcr.io/kubeflow/trainer/data-cache", start_seconds=0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with cluster_with_runtimes() as cluster:
        cluster.create(
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": "orders", "namespace": "default"},
                "spec": {
                    "runtimeRef": {"name": RUNTIME},
                    "initializer": {"dataset": {"storageUri": "cache://shop/orders"}},
                },
            }
        )
        yield cluster


def add_pod(cluster: EmbeddedCluster, role: str, **status: Any) -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": SETTINGS.name, "jobset.sigs.k8s.io/replicatedjob-name": role}
    name = f"orders-cache-{role}-0-0-abcde"
    cluster.create(pod(name, labels=labels, container={"name": role}))
    cluster.patch(POD, name, {"status": status}, "default", subresource="status")


def add_ready_head(cluster: EmbeddedCluster) -> None:
    add_pod(cluster, "head", phase="Running", conditions=[{"type": "Ready", "status": "True"}])


def failed(role: str, message: str) -> dict[str, Any]:
    terminated = {"exitCode": 1, "reason": "Error", "message": message}
    return {"phase": "Failed", "containerStatuses": [{"name": role, "state": {"terminated": terminated}}]}


def start(cluster: Any, settings: CacheSettings = SETTINGS, *, is_reachable: bool = True) -> str:
    return start_cache(cluster, settings, "default", reach=lambda _service: is_reachable).service


def names(cluster: EmbeddedCluster) -> list[str]:
    return [obj["metadata"]["name"] for kind in (JOBSET, SERVICE) for obj in cluster.list(kind, "default").items]


def change(cluster: EmbeddedCluster, name: str, kind: Any = TRAINJOB, **spec: Any) -> None:
    cluster.patch(kind, name, {"spec": spec}, "default")


def finish(cluster: EmbeddedCluster, kind: Any, name: str, condition: str) -> None:
    entry = {"type": condition, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    cluster.patch(kind, name, {"status": {"conditions": [entry]}}, "default", subresource="status")


def test_cache_is_created_and_taken_by_a_second_attempt(cluster: EmbeddedCluster) -> None:
    add_ready_head(cluster)
    assert start(cluster) == "orders-cache-service"
    before = cluster.get(JOBSET, "orders-cache", "default")
    assert start(cluster) == "orders-cache-service"
    assert cluster.get(JOBSET, "orders-cache", "default") == before
    assert names(cluster) == ["orders-cache", "orders-cache-service"]


def test_object_of_another_job_is_refused(cluster: EmbeddedCluster) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "orders-cache-service", "namespace": "default"}}
    cluster.create({**service, "spec": {"ports": [{"port": 1}]}})
    with pytest.raises(CacheError, match="Service default/orders-cache-service exists and is not of this TrainJob orders"):
        start(cluster)


def test_reason_of_a_failed_worker_is_reported(cluster: EmbeddedCluster) -> None:
    add_pod(cluster, "head", **failed("head", "INFO x\nworker 0 of the cache failed: no answer\n"))
    add_pod(cluster, "worker", **failed("worker", "INFO loading\nthe table does not fit into the memory of the cache: 9 rows\n"))
    with pytest.raises(
        CacheError, match="the data cache orders-cache failed: pod orders-cache-worker-0-0-abcde: the table does not"
    ):
        start(cluster)


def test_cache_that_is_not_ready_in_time_says_what_it_waits_for(cluster: EmbeddedCluster) -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient memory"}
    add_pod(cluster, "head", phase="Pending", conditions=[unschedulable])
    with pytest.raises(CacheError, match="was not ready after 0 s: pod orders-cache-head-0-0-abcde: Insufficient memory"):
        start(cluster)


def test_missing_right_is_named(cluster: EmbeddedCluster) -> None:
    class WithoutRights:
        def get(self, *_: Any) -> Any:
            raise Forbidden('trainjobs "orders" is forbidden')

    with pytest.raises(CacheError, match=r'trainjobs "orders" is forbidden; see docs/data-cache.md'):
        start(WithoutRights())


def test_cache_that_pods_cannot_reach_is_a_failure(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NAME_SECONDS", 0)
    add_ready_head(cluster)
    with pytest.raises(CacheError, match="not reachable at orders-cache-service"):
        start(cluster, is_reachable=False)


def test_cache_is_suspended_resumed_and_deleted_with_its_trainjob(cluster: EmbeddedCluster) -> None:
    add_ready_head(cluster)
    start(cluster)
    reconcile = data_cache(cluster).reconcile
    for suspend in (True, False):
        change(cluster, "orders", suspend=suspend)
        reconcile(("default", "orders"))
        assert cluster.get(JOBSET, "orders-cache", "default")["spec"]["suspend"] is suspend
    finish(cluster, TRAINJOB, "orders", "Failed")
    reconcile(("default", "orders"))
    assert names(cluster) == []


def test_secret_of_a_cache_is_deleted_with_its_trainjob_and_no_other(cluster: EmbeddedCluster) -> None:
    job = cluster.get(TRAINJOB, "orders", "default")
    made = materialize(job, catalogue_runtime(RUNTIME), settings=Settings(cache_keys=True), keys=RandomKeys())
    secret = next(obj for obj in made if obj["kind"] == "Secret")
    other = {**secret, "metadata": {"name": "other-cache-key", "namespace": "default"}}
    for obj in (secret, other):
        cluster.create(obj)
    data_cache(cluster).reconcile(("default", "orders"))
    assert len(cluster.list(SECRET, "default").items) == 2
    finish(cluster, TRAINJOB, "orders", "Complete")
    data_cache(cluster).reconcile(("default", "orders"))
    assert [obj["metadata"]["name"] for obj in cluster.list(SECRET, "default").items] == ["other-cache-key"]


def test_open_cache_is_warned_of(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    add_ready_head(cluster)
    start(cluster)
    assert "open_cache" not in caplog.text
    start(cluster, replace(SETTINGS, is_open=True))
    assert "event=open_cache variable=CACHE_OPEN effect='every process of this machine can read the rows" in caplog.text


def test_failed_cache_fails_the_training_with_its_reason(cluster: EmbeddedCluster) -> None:
    add_ready_head(cluster)
    start(cluster)
    job = cluster.get(TRAINJOB, "orders", "default")
    training = materialize(job, catalogue_runtime(RUNTIME))[-1]
    training["metadata"]["ownerReferences"] = [owner_reference(job)]
    cluster.create(training)
    add_pod(cluster, "worker", **failed("worker", "INFO loading\nit has changed\n"))
    finish(cluster, JOBSET, "orders-cache", "Failed")
    data_cache(cluster).reconcile(("default", "orders"))
    status = cluster.get(JOBSET, "orders", "default")["status"]
    assert status["terminalState"] == "Failed"
    assert [(entry["reason"], entry["message"]) for entry in status["conditions"] if entry["type"] == "Failed"] == [
        ("DataCacheFailed", "the data cache orders-cache failed: pod orders-cache-worker-0-0-abcde: it has changed")
    ]


def test_cache_of_another_trainjob_of_the_name_is_left_alone(cluster: EmbeddedCluster) -> None:
    add_ready_head(cluster)
    start(cluster)
    job = cluster.get(TRAINJOB, "orders", "default")
    cluster.delete(TRAINJOB, "orders", "default")
    cluster.create({**job, "metadata": {"name": "orders", "namespace": "default"}})
    finish(cluster, TRAINJOB, "orders", "Complete")
    data_cache(cluster).reconcile(("default", "orders"))
    assert names(cluster) == ["orders-cache", "orders-cache-service"]
