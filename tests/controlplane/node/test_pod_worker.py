"""The worker of one pod: its start and its end. What it does for a pod is tested on a running node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import pod

from trainwright.api.objects import Obj
from trainwright.controlplane.node import pod_worker
from trainwright.controlplane.node.container import run_of
from trainwright.controlplane.node.pod_worker import PodWorker


def versioned_pod(version: int = 1, phase: str = "Running") -> Obj:
    return pod(phase=phase, metadata={"uid": "u", "resourceVersion": str(version)}, containers=[])


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[PodWorker]:
    services: Any = SimpleNamespace(pods_folder=tmp_path, isolation=SimpleNamespace(available=True))
    made = PodWorker(versioned_pod(), services)
    yield made
    made.stop_watching()
    made.join(5)


def has_ended(worker: PodWorker) -> bool:
    worker.join(5)
    return not worker.is_alive()


def test_a_node_may_stop_while_a_worker_is_about_to_start(worker: PodWorker) -> None:
    worker.stop_watching()
    worker.join(5)
    worker.start()
    assert has_ended(worker)
    assert not worker.folder.exists()


def test_a_deletion_during_a_write_of_the_status_is_not_lost(worker: PodWorker) -> None:
    deleted: list[str] = []

    def patch(*_: Any, **__: Any) -> Obj:
        """The pod is deleted after the write, and the watch says so before its answer has come."""
        if not deletion:
            deletion.append(versioned_pod(5))
            deletion[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
            assert worker.update(deletion[0])
        return versioned_pod(4)

    deletion: list[Obj] = []
    services: Any = worker._services
    services.cluster = SimpleNamespace(patch=patch, delete=lambda _kind, name, *_, **__: deleted.append(name))
    services.volumes = SimpleNamespace(make=lambda *_: None)
    services.images = SimpleNamespace(user_of=lambda _image: None)
    services.events = SimpleNamespace(record=lambda *_: None)
    services.address_of = lambda _pod: "127.0.0.2"
    worker.start()
    assert has_ended(worker), "it waits for a deletion that it has been told of"
    assert set(deleted) == {deletion[0]["metadata"]["name"]}


def test_a_pod_that_has_ended_keeps_no_thread(worker: PodWorker) -> None:
    assert worker.update(versioned_pod(2, "Succeeded"))
    worker.start()
    assert has_ended(worker)
    assert not worker.update(versioned_pod(3, "Succeeded")), "news is for another worker"


@pytest.mark.parametrize("is_isolated", [True, False])
def test_leftover_processes_of_runs_without_namespaces_are_killed(
    worker: PodWorker, monkeypatch: pytest.MonkeyPatch, is_isolated: bool
) -> None:
    killed: list[str] = []
    monkeypatch.setattr(pod_worker, "kill_pod_processes", killed.append)
    run = run_of("main", 0, worker.folder)
    run.folder.mkdir(parents=True)
    (run.folder / "lock").touch()
    (run.folder / "exit.json").write_text('{"code": 0, "finishedAt": 1.0}')
    if is_isolated:
        (run.folder / "identity.json").touch()
    assert worker.update(versioned_pod(2, "Succeeded"))
    worker.start()
    assert has_ended(worker)
    assert killed == ([] if is_isolated else ["u"])
