"""What controllers read: never behind their own writes, whatever the watch tells late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from factories import cluster_in_memory, pod

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, JOB, POD
from trainwright.controlplane.controllers.housekeeping import claim_protection
from trainwright.controlplane.controllers.local_cache import Indexer, LocalCache
from trainwright.controlplane.embedded import EmbeddedCluster

LABEL = "batch.kubernetes.io/job-name"


def versioned_pod(name: str, version: int, uid: str = "", **metadata: Any) -> dict[str, Any]:
    return pod(name, namespace="ns", metadata={"uid": uid or name, "resourceVersion": str(version), **metadata})


def names(indexer: Indexer, selector: str = "") -> list[str]:
    return [obj["metadata"]["name"] for obj in indexer.list_candidates("ns", selector)]


def test_indexer_ignores_older_versions() -> None:
    indexer = Indexer()
    indexer.store(versioned_pod("a", 12, generation=2))
    indexer.store(versioned_pod("a", 9, generation=1))
    assert (indexer.get(("ns", "a")) or {})["metadata"]["generation"] == 2


def test_object_marked_as_deleting_stays_until_the_watch_removes_it() -> None:
    indexer = Indexer()
    indexer.store(versioned_pod("a", 1))
    indexer.mark_deleting(versioned_pod("a", 1))
    assert (indexer.get(("ns", "a")) or {})["metadata"]["deletionTimestamp"]
    indexer.remove(versioned_pod("a", 3))
    assert indexer.get(("ns", "a")) is None


def test_the_answer_to_a_write_does_not_bring_back_what_is_gone() -> None:
    indexer = Indexer()
    indexer.store(versioned_pod("a", 1))
    indexer.remove(versioned_pod("a", 4))
    indexer.store(versioned_pod("a", 2))
    assert indexer.get(("ns", "a")) is None


def test_a_successor_outlives_the_news_of_its_predecessors_end() -> None:
    indexer = Indexer()
    indexer.store(versioned_pod("a", 1, uid="old"))
    indexer.store(versioned_pod("a", 5, uid="new"))
    indexer.remove(versioned_pod("a", 4, uid="old"))
    assert (indexer.get(("ns", "a")) or {})["metadata"]["uid"] == "new"


def test_lists_by_label_follow_its_changes() -> None:
    indexer = Indexer()
    indexer.store(versioned_pod("a", 1, labels={LABEL: "x"}))
    indexer.store(versioned_pod("b", 2, labels={LABEL: "y"}))
    assert names(indexer, f"{LABEL}=x") == ["a"]
    indexer.store(versioned_pod("a", 3, labels={LABEL: "y"}))
    assert (names(indexer, f"{LABEL}=x"), names(indexer, f"{LABEL}=y,other=1")) == ([], ["a", "b"])
    indexer.remove(versioned_pod("b", 4))
    assert names(indexer, f"{LABEL}=y") == ["a"]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with cluster_in_memory() as cluster:
        yield cluster


work_pod = partial(pod, labels={LABEL: "work"})


@pytest.mark.medium
def test_own_writes_are_read_at_once(cluster: EmbeddedCluster) -> None:
    stop = threading.Event()
    cache = LocalCache(cluster, (POD,), stop)
    cache.start()
    try:
        for number in range(50):
            cache.create(work_pod(f"p{number}"))
            assert len(cache.list(POD, "default", label_selector=f"{LABEL}=work").items) == 1
            cache.patch(POD, f"p{number}", {"metadata": {"labels": {"seen": str(number)}}}, "default")
            found = cache.get(POD, f"p{number}", "default")
            assert found["metadata"]["labels"]["seen"] == str(number)
            found["metadata"]["labels"].clear()  # the caller's own
            assert cache.get(POD, f"p{number}", "default")["metadata"]["labels"]["seen"] == str(number)
            cache.delete(POD, f"p{number}", "default")
            gone = cache.list(POD, "default").items
            assert all("deletionTimestamp" in obj["metadata"] for obj in gone)
            cluster_has = {obj["metadata"]["name"] for obj in cluster.list(POD, "default").items}
            assert f"p{number}" not in cluster_has
            while cache.list(POD, "default").items:
                stop.wait(0.005)
        with pytest.raises(NotFound):
            cache.get(POD, "p0", "default")
        with pytest.raises(NotFound):
            cache.get(JOB, "read-from-the-api", "default")
    finally:
        stop.set()


@pytest.mark.medium
def test_a_claim_goes_when_no_pod_uses_it_any_more(cluster: EmbeddedCluster) -> None:
    protection = claim_protection(cluster)
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"}}
    cluster.create({**claim, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    cluster.create(work_pod("user", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
    cluster.delete(CLAIM, "data", "default")
    protection.reconcile(("default", "data"))
    assert cluster.get(CLAIM, "data", "default")["metadata"]["deletionTimestamp"]
    assert list(protection.watches[POD](cluster.get(POD, "user", "default"))) == [("default", "data")]
    cluster.delete(POD, "user", "default")
    protection.reconcile(("default", "data"))
    with pytest.raises(NotFound):
        cluster.get(CLAIM, "data", "default")
