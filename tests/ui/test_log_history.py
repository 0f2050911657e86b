"""Tests curves from logs: of the first rank, parsed once, also while the log grows and from a pod that was replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from factories import pod, trainjob
from support.waiting import eventually

from trainwright.api.errors import NotFound
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Call, Page
from trainwright.ui.log_history import LogHistories
from trainwright.ui.sessions import Session

STAMP = "2026-11-01T00:00:00.000000000Z "


class Talking(EmbeddedCluster):
    """Pods whose logs a test scripts."""

    texts: dict[str, list[str]]
    more: threading.Event

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        told = 0
        while True:
            lines = self.texts.get(name, [])
            yield "".join(f"{STAMP}{line}\n" for line in lines[told:]).encode()
            told = len(lines)
            if not options.get("follow") or self.more.is_set():
                return
            self.more.wait(0.02)


@pytest.fixture
def talking(cluster: EmbeddedCluster) -> Iterator[Talking]:
    cluster.__class__ = Talking
    assert isinstance(cluster, Talking)
    cluster.texts, cluster.more = {}, threading.Event()
    cluster.create(trainjob("demo"))
    yield cluster
    cluster.more.set()


@pytest.fixture
def histories() -> LogHistories:
    return LogHistories()


def add_pod(cluster: Talking, name: str, lines: list[str], *, step: str = "node", index: int = 0) -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/replicatedjob-name": step}
    labels["batch.kubernetes.io/job-completion-index"] = str(index)
    made = cluster.create(pod(name, labels=labels, container={"name": step}))
    entry = {"name": step, "restartCount": 0, "state": {"running": {"startedAt": "2026-11-01T00:00:00Z"}}}
    cluster.update_status({**made, "status": {"phase": "Running", "containerStatuses": [entry]}})
    cluster.texts[name] = lines


def series(histories: LogHistories, cluster: Talking, until: int) -> dict[str, Any]:
    call = Call(Session(JobsClient.of(cluster), "", "k", 0.0), Page(), query={"namespace": "default"})

    def read() -> dict[str, Any] | None:
        found = histories.read(call, "demo")
        return found if sum(map(len, found["series"].values())) >= until else None

    return eventually(read, 20, f"{until} points")


def test_metrics_of_the_first_rank_become_series(talking: Talking, histories: LogHistories) -> None:
    add_pod(talking, "demo-data", ["{'loss': 99.0, 'step': 1}"], step="dataset-initializer")
    add_pod(talking, "demo-1", ["{'loss': 88.0, 'step': 1}"], index=1)
    add_pod(
        talking, "demo-0", ["begin", "{'loss': 2.5, 'step': 1}", "{'loss': '1.5', 'step': 2}", "{'eval_loss': 1.75, 'step': 2}"]
    )
    found = series(histories, talking, 3)
    assert found["series"] == {"loss": [(1, 2.5), (2, 1.5)], "eval_loss": [(2, 1.75)]}
    assert (found["axis"], found["source"]) == ("step", "the log of demo-0")


def test_lines_without_steps_are_counted(talking: Talking, histories: LogHistories) -> None:
    add_pod(talking, "demo-0", ["{'loss': 2.5}", "{'loss': 1.5}"])
    found = series(histories, talking, 2)
    assert found["axis"] == "report"
    assert [value for _, value in found["series"]["loss"]] == [2.5, 1.5]


def test_new_lines_are_added_to_what_was_parsed(talking: Talking, histories: LogHistories) -> None:
    add_pod(talking, "demo-0", ["{'loss': 2.5, 'step': 1}"])
    series(histories, talking, 1)
    talking.texts["demo-0"].append("{'loss': 1.5, 'step': 2}")
    assert series(histories, talking, 2)["series"]["loss"] == [(1, 2.5), (2, 1.5)]


def test_launcher_comes_before_its_workers(talking: Talking, histories: LogHistories) -> None:
    add_pod(talking, "demo-0", ["{'loss': 9.0, 'step': 1}"])
    add_pod(talking, "demo-launcher", ["{'loss': 2.5, 'step': 1}"], step="launcher")
    assert series(histories, talking, 1)["source"] == "the log of demo-launcher"


def test_job_without_metrics_has_no_series(talking: Talking, histories: LogHistories) -> None:
    call = Call(Session(JobsClient.of(talking), "", "k", 0.0), Page(), query={"namespace": "default"})
    assert histories.read(call, "demo")["series"] == {}
    with pytest.raises(NotFound):
        histories.read(call, "nothing")
