"""One waiter has a watch of its own, all others share one; a shared watch that lags behind ends no wait."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from factories import program_request
from support.waiting import eventually

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import POD, TRAINJOB, Kind
from trainwright.api.objects import name_of
from trainwright.api.phase import Phase
from trainwright.cluster.protocol import DelegatingCluster, Listing
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainJobDeleted, submit_or_adopt, wait_for
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.job_watch import JobWatch

QUICK = WaitSettings(poll_seconds=0.05)


class Counting(DelegatingCluster):
    """The cluster; remembers what was asked of it, narrowed to one name or not."""

    def __init__(self, cluster: EmbeddedCluster, refuse_all: bool = False):
        super().__init__(cluster)
        self._refuse_all = refuse_all
        self.narrow: list[str] = []
        self.wide: list[str] = []
        self.pods: list[str] = []
        """The selectors of lists of pods."""

    def list(self, kind: Kind, *arguments: Any, **more: Any) -> Listing:
        if kind == TRAINJOB:
            self._note("list", more)
        self.pods += [more["label_selector"]] if kind == POD else []
        return self._cluster.list(kind, *arguments, **more)

    def watch(self, kind: Kind, *arguments: Any, **more: Any) -> Iterator[Any]:
        if kind == TRAINJOB:
            self._note("watch", more)
        return self._cluster.watch(kind, *arguments, **more)

    def _note(self, verb: str, more: dict[str, Any]) -> None:
        narrow = bool(more.get("field_selector"))
        (self.narrow if narrow else self.wide).append(verb)
        if self._refuse_all and not narrow:
            raise Forbidden("only that one")


@pytest.fixture
def jobs(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    request = program_request()
    return [submit_or_adopt(Submission(cluster, request, Identity("o", str(run), "s"), "default")).trainjob for run in range(8)]


class Waits:
    """`wait_for` of many jobs, each in a thread, begun one after the other."""

    def __init__(self, cluster: Any, jobs: list[dict[str, Any]]):
        self.outcomes: dict[str, Any] = {}
        self.threads = []
        for job in jobs:
            begun = threading.Event()
            thread = threading.Thread(target=self._wait, args=(cluster, job, begun), daemon=True)
            thread.start()
            assert begun.wait(10)
            self.threads.append(thread)

    def _wait(self, cluster: Any, job: dict[str, Any], begun: threading.Event) -> None:
        try:
            seen = wait_for(cluster, job, QUICK, on_event=lambda _: begun.set())
            self.outcomes[job["metadata"]["name"]] = seen["metadata"]["name"]
        except Exception as error:
            self.outcomes[job["metadata"]["name"]] = error

    def end(self) -> dict[str, Any]:
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        return self.outcomes


def test_one_waiter_asks_for_its_job_alone(cluster: EmbeddedCluster, jobs: list[dict[str, Any]], set_status: Any) -> None:
    counting = Counting(cluster)
    waits = Waits(counting, jobs[:1])
    set_status(jobs[0], "Complete")
    waits.end()
    assert counting.narrow == ["list", "watch"]
    assert counting.wide == []


@pytest.mark.medium
def test_looks_at_a_running_job_cost_no_request(
    cluster: EmbeddedCluster, jobs: list[dict[str, Any]], set_status: Any, add_pod: Any
) -> None:
    add_pod(jobs[0], phase="Running")
    running = [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]
    set_status(jobs[0], jobsStatus=running)
    counting, looks = Counting(cluster), itertools.count()

    def interval(_phase: Phase) -> float:
        if next(looks) == 20:
            set_status(jobs[0], "Complete")
        return 0.01

    wait_for(counting, jobs[0], WaitSettings(poll_seconds=0.01, interval=interval))
    assert next(looks) >= 20
    at_the_end = 2  # what the job has used, and what it started from
    assert counting.pods == [f"jobset.sigs.k8s.io/jobset-name={name_of(jobs[0])}"] * (1 + at_the_end)


def test_many_waiters_cost_one_watch_more(cluster: EmbeddedCluster, jobs: list[dict[str, Any]], set_status: Any) -> None:
    counting = Counting(cluster)
    waits = Waits(counting, jobs)
    for job in jobs[1:]:
        set_status(job, "Complete")
    cluster.delete(TRAINJOB, jobs[0]["metadata"]["name"], "default")
    outcomes = waits.end()
    assert isinstance(outcomes.pop(jobs[0]["metadata"]["name"]), TrainJobDeleted)
    assert outcomes == {name: name for name in outcomes}
    assert (counting.narrow.count("list"), counting.wide.count("list")) == (1, 1)


@pytest.mark.medium
def test_who_may_not_watch_the_namespace_watches_its_own_job(
    cluster: EmbeddedCluster, jobs: list[dict[str, Any]], set_status: Any
) -> None:
    counting = Counting(cluster, refuse_all=True)
    waits = Waits(counting, jobs[:3])
    eventually(lambda: counting.narrow.count("list") == 3)
    for job in jobs[:3]:
        set_status(job, "Complete")
    assert set(waits.end()) == {job["metadata"]["name"] for job in jobs[:3]}


def test_a_watch_that_lags_behind_ends_no_wait(
    cluster: EmbeddedCluster, jobs: list[dict[str, Any]], set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs[0]
    earlier = {**job, "metadata": {**job["metadata"], "uid": "of-an-earlier-one"}}
    changes: list[Any] = [("DELETED", earlier), ("MODIFIED", earlier), None, None]

    def late(_self: JobWatch, _seconds: float) -> Any:
        if not changes:
            return "MODIFIED", set_status(job, "Complete")
        return changes.pop(0)

    monkeypatch.setattr(JobWatch, "next_change", late)
    monkeypatch.setattr(JobWatch, "is_absent", lambda _self: True)
    assert wait_for(cluster, job, QUICK)["metadata"]["uid"] == job["metadata"]["uid"]
