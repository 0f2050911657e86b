"""Waiting: what ends it, and what it says then."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from factories import program_request
from support.waiting import eventually

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import (
    Deadlines,
    Identity,
    JobEvent,
    Phase,
    Submission,
    TrainJobDeleted,
    Waiting,
    wait_for,
)
from trainwright.jobs.diagnosis.errors import Diverged
from trainwright.jobs.diagnosis.exit_codes import exit_code_of, is_permanent
from trainwright.jobs.state.deadline_timer import DeadlineTimer
from trainwright.jobs.wait import job_watch
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import follow_to_end, run_to_end

QUICK = WaitSettings(poll_seconds=0.05)


def remove(cluster: EmbeddedCluster, job: dict[str, Any]) -> None:
    cluster.delete(TRAINJOB, job["metadata"]["name"], "default")


def test_another_of_the_same_name_is_not_the_one_we_wait_for(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Any
) -> None:
    remove(cluster, job)
    again = cluster.create({**job, "metadata": {"name": job["metadata"]["name"], "namespace": "default"}})
    set_status(again, "Complete")
    with pytest.raises(TrainJobDeleted):
        wait_for(cluster, job, QUICK)


@pytest.mark.parametrize(
    ("phase", "has_started", "is_initializing", "expected"),
    [
        (Phase.Running, None, False, "run"),
        (Phase.Running, False, False, "start"),
        (Phase.Running, True, False, "run"),
        (Phase.Starting, None, False, "start"),
        (Phase.Starting, True, False, "run"),
        (Phase.Restarting, None, False, "start"),
        (Phase.Restarting, True, False, "run"),
        (Phase.Starting, False, True, None),
        (Phase.Running, False, True, None),
        (Phase.Queued, False, False, "queue"),
        (Phase.Suspended, True, False, "queue"),
    ],
)
def test_deadline_counts_the_start_until_all_pods_have_started(
    monkeypatch: pytest.MonkeyPatch, phase: Phase, has_started: bool | None, is_initializing: bool, expected: str | None
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = DeadlineTimer(Deadlines(queue=10, start=10, run=10))
    state: dict[str, Any] = {"is_initializing": is_initializing, "has_started": has_started}
    assert clock.expired(phase, **state) is None
    now[0] += 11
    expired = clock.expired(phase, **state)
    assert (expired[0] if expired else None) == expected


class Refusing:
    def __init__(self, error: Exception):
        self._error = error

    def list(self, *_: Any, **__: Any) -> None:
        raise self._error


@pytest.mark.medium
def test_who_may_not_read_the_job_is_told_at_once(job: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match="not you"):
        wait_for(Refusing(Forbidden("not you")), job, QUICK)  # type: ignore[arg-type]


def test_a_cluster_that_stays_away_ends_the_wait_and_one_that_comes_back_does_not(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_status(job, "Complete")

    class Flaky:
        left = 2
        watch = staticmethod(cluster.watch)

        def list(self, *arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left >= 0:
                raise ServiceUnavailable("down", retry_after=0.2)
            return cluster.list(*arguments, **more)

    assert wait_for(Flaky(), job, QUICK)["metadata"]["uid"] == job["metadata"]["uid"]  # type: ignore[arg-type]
    monkeypatch.setattr(job_watch, "CLUSTER_LOST_SECONDS", 0.1)
    with pytest.raises(ServiceUnavailable, match="down"):
        wait_for(Refusing(ServiceUnavailable("down")), job, QUICK)  # type: ignore[arg-type]


def report(step: int, loss: str) -> dict[str, Any]:
    figures = {"loss": loss, "step": str(step)}
    metrics = [{"name": name, "value": value} for name, value in figures.items()]
    running = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    return {"jobsStatus": [running], "trainerStatus": {"lastUpdatedTime": f"2026-01-01T00:00:{step:02}Z", "metrics": metrics}}


def test_training_that_diverges_is_stopped_and_the_wait_names_the_figure(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Any
) -> None:
    seen: list[JobEvent] = []
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            follow_to_end(cluster, job, Waiting(QUICK, observers=(seen.extend,)))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    eventually(lambda: seen)
    for step, loss in enumerate(("1.5", "nan", "nan", "nan"), start=1):
        count = len(seen)
        set_status(job, **report(step, loss))
        eventually(lambda known=count: len(seen) > known)
    thread.join(20)
    (error,) = outcome
    assert isinstance(error, Diverged)
    assert "diverged: loss is nan since step 2 (3 reports in a row); the last finite value was 1.5 at step 1" in str(error)
    assert "it is suspended" in str(error)
    assert cluster.get(TRAINJOB, job["metadata"]["name"], "default")["spec"]["suspend"] is True
    assert (exit_code_of(error), is_permanent(error)) == (14, True)


def test_training_that_ends_with_a_loss_that_is_not_finite_has_diverged(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Any
) -> None:
    set_status(job, "Complete", **report(9, "nan"))
    for _ in range(2):  # a retry adopts the finished job
        with pytest.raises(Diverged, match="loss is nan since step 9 \\(in its last report\\); it had already ended"):
            run_to_end(Submission(cluster, program_request(), Identity("o", "r", "s"), "default"), Waiting(QUICK))
    with pytest.raises(Diverged, match="it had already ended"):
        follow_to_end(cluster, job, Waiting(QUICK, on_error=lambda *_: "it keeps running"))
