"""The pods of all awaited jobs by one watch: what a look at one job sees, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.api.objects import name_of, uid_of
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.diagnosis.report import PodObserver
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.state.watched_pods import PodsOfJob, WatchedPods
from trainwright.trainer.webhooks import VALIDATORS

LABELS = {"job": "jobset.sigs.k8s.io/jobset-name", "step": "jobset.sigs.k8s.io/replicatedjob-name"}


class Counting(EmbeddedCluster):
    """Counts lists and watches of pods; an error in `refused` is raised for a verb."""

    def __init__(self) -> None:
        super().__init__(ResourceServer(Store(":memory:"), validators=VALIDATORS))
        self.asked = {"list": 0, "watch": 0}
        self.refused: dict[str, Exception] = {}

    def list(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        self._count("list", kind)
        return super().list(kind, *arguments, **more)

    def watch(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        self._count("watch", kind)
        return super().watch(kind, *arguments, **more)

    def _count(self, verb: str, kind: Any) -> None:
        if kind == POD:
            self.asked[verb] += 1
            if error := self.refused.get(verb):
                raise error

    def add(self, job: str, name: str, step: str = "node", namespace: str = "default") -> None:
        labels = {LABELS["job"]: job, LABELS["step"]: step}
        spec = {"containers": [{"name": "node", "image": "i:1", "env": [{"name": "A", "value": "b" * 1000}]}]}
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": spec,
            }
        )


@pytest.fixture
def cluster() -> Iterator[Counting]:
    counting = Counting()
    yield counting
    counting.close()


def names_of(view: PodsOfJob, job: str, step: str = "") -> list[str]:
    return [name_of(pod) for pod in pods_of(view, {"metadata": {"name": job, "namespace": "default"}}, step)]


@pytest.mark.medium
def test_looks_at_many_jobs_are_one_list_and_one_watch(cluster: Counting) -> None:
    watched = WatchedPods()
    views = {f"job-{number}": watched.open("c", cluster, "default", f"job-{number}") for number in range(50)}
    for job in views:
        cluster.add(job, f"{job}-node-0")
        cluster.add(job, f"{job}-data-0", step="dataset-initializer")
    eventually(lambda: len(names_of(views["job-49"], "job-49")) == 2)
    for _ in range(10):
        for job, view in views.items():
            assert names_of(view, job) == [f"{job}-data-0", f"{job}-node-0"]
            assert names_of(view, job, "node") == [f"{job}-node-0"]
    assert cluster.asked == {"list": 1, "watch": 1}
    for view in views.values():
        view.close()
        view.close()
    again = watched.open("c", cluster, "default", "job-0")
    assert names_of(again, "job-0") == ["job-0-data-0", "job-0-node-0"]
    assert cluster.asked == {"list": 2, "watch": 2}, "the last view has ended the watch, and a later one begins another"
    again.close()


def test_a_pod_that_is_deleted_between_two_looks_is_seen_once_as_it_was_last(cluster: Counting) -> None:
    view = WatchedPods().open("c", cluster, "default", "job")
    cluster.add("job", "failing")
    eventually(lambda: names_of(view, "job") == ["failing"])
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": None, "finishedAt": None}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "node", "state": ended}]}
    cluster.patch(POD, "failing", {"status": status}, "default", subresource="status")
    cluster.delete(POD, "failing", "default", grace_period_seconds=0)
    cluster.add("job", "next")
    eventually(lambda: names_of(view, "job") == ["next"])
    observer = PodObserver(view, {"metadata": {"name": "job", "namespace": "default"}})
    assert [name_of(pod) for pod in observer.observe()] == ["next"]
    seen = {name_of(seen.pod): seen.pod for seen in observer.history.pods()}
    assert set(seen) == {"failing", "next"}
    assert seen["failing"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert view.take_gone() == ()
    view.close()


def test_a_pod_that_was_replaced_under_its_name_between_two_lists_is_gone(
    cluster: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright.cluster.reflector.POLL_SECONDS", 0.01)
    cluster.refused["watch"] = Forbidden("watch is not allowed")
    cluster.add("job", "own")
    view = WatchedPods().open("c", cluster, "default", "job")
    (first,) = pods_of(view, {"metadata": {"name": "job", "namespace": "default"}}, "")
    cluster.refused["list"] = ServiceUnavailable("starting")
    cluster.delete(POD, "own", "default", grace_period_seconds=0)
    cluster.add("job", "own")
    del cluster.refused["list"]
    eventually(lambda: [uid_of(pod) for pod in view.take_gone()] == [uid_of(first)])
    assert names_of(view, "job") == ["own"]
    view.close()
