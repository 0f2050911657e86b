"""The worker of one pod: its thread's start, waits, errors and end. What it does for a pod is tested on a running node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import pod
from support.waiting import eventually

from trainwright.api.objects import Obj
from trainwright.controlplane.node import pod_worker
from trainwright.controlplane.node.container import run_of
from trainwright.controlplane.node.pod_worker import PodWorker


def versioned_pod(version: int = 1, phase: str = "Running") -> Obj:
    return pod(phase=phase, metadata={"uid": "u", "resourceVersion": str(version)}, containers=[])


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodWorker]:
    monkeypatch.setattr(pod_worker, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(pod_worker, "IDLE_SECONDS", 0.001)
    services: Any = SimpleNamespace(pods_folder=tmp_path, isolation=SimpleNamespace(available=True))
    made = PodWorker(versioned_pod(), services)
    yield made
    made.stop_watching()
    made.join(5)


def steps(worker: PodWorker, monkeypatch: pytest.MonkeyPatch, *results: Callable[[], float | None]) -> list[int]:
    """Let the worker's steps do these things, the last one again and again. Returns a list with the number of each step."""
    done: list[int] = []

    def step() -> float | None:
        done.append(len(done))
        return results[min(len(done), len(results)) - 1]()

    monkeypatch.setattr(worker, "_step", step)
    return done


def has_ended(worker: PodWorker) -> bool:
    worker.join(5)
    return not worker.is_alive()


def test_a_node_may_stop_while_a_worker_is_about_to_start(worker: PodWorker) -> None:
    worker.stop_watching()
    worker.join(5)
    worker.start()
    assert has_ended(worker)
    assert not worker.folder.exists()


def test_a_pod_that_has_ended_keeps_no_thread(worker: PodWorker) -> None:
    assert worker.update(versioned_pod(2, "Succeeded"))
    worker.start()
    assert has_ended(worker)
    assert not worker.update(versioned_pod(3, "Succeeded")), "news is for another worker"


def test_news_that_comes_with_the_last_step_is_not_lost(worker: PodWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken() -> None:
        assert worker.update(versioned_pod(2))

    done = steps(worker, monkeypatch, overtaken, lambda: None)
    worker.start()
    assert has_ended(worker)
    assert done == [0, 1]
    assert not worker.update(versioned_pod(3))


def test_a_step_that_fails_is_tried_again(
    worker: PodWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception) -> None:
        raise error

    results = (lambda: fail(OSError("disk full")), lambda: fail(RuntimeError("a mistake of ours")), lambda: None)
    done = steps(worker, monkeypatch, *results)
    worker.start()
    assert has_ended(worker)
    assert done == [0, 1, 2]
    assert "disk full" in caplog.text
    assert "a mistake of ours" in caplog.text


def test_a_quiet_pod_is_looked_at_when_there_is_news(worker: PodWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)

    def is_quiet() -> bool:
        looks.release()
        return True

    monkeypatch.setattr(worker, "_is_quiet", is_quiet)
    done = steps(worker, monkeypatch, lambda: pod_worker.IDLE_SECONDS)
    worker.start()
    for _ in range(3):
        assert looks.acquire(timeout=5)
    assert done == [0]
    worker.wake()
    eventually(lambda: done == [0, 1])


def test_a_wait_for_something_that_is_due_is_not_prolonged(worker: PodWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_is_quiet", lambda: True)
    done = steps(worker, monkeypatch, lambda: 0.0005, lambda: 0.0005, lambda: None)
    worker.start()
    assert has_ended(worker)
    assert done == [0, 1, 2]


@pytest.mark.parametrize("is_isolated", [True, False])
def test_what_a_run_without_namespaces_may_have_left_is_killed_whatever_the_node_does_now(
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
