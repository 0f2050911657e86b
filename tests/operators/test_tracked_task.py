"""TrainJobOperator feeds its trackers: while it waits in the worker, and with the last values when a deferred task has ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from factories import task_context
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright import operators
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import TrainJobDeadline
from trainwright.jobs.logs.training_log import TrainingLog
from trainwright.jobs.wait.job_events import JobEvents, Logged, Metrics, OnJobEvents

task_identity = OnFirstUse("trainwright.operators.values.task_identity")
sdk_exceptions = OnFirstUse("airflow.sdk.exceptions")
errors = OnFirstUse("trainwright.operators.errors")

pytestmark = pytest.mark.medium
STATUS = {"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": [{"name": "loss", "value": "0.5"}]}


class _Observer:
    def __init__(self, observe: OnJobEvents, tracker: Tracker):
        self._observe, self._tracker = observe, tracker

    def __call__(self, events: JobEvents) -> None:
        self._observe(events)

    def begin(self, uid: str) -> None:
        self._tracker.uid = uid


class Tracker:
    """Takes the place of the tools: what they were told."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.folder: Path | None = None
        self.metrics: list[dict[str, str]] = []
        self.logged: list[Any] = []
        self.uid = ""
        self.end = ""

    @contextmanager
    def tracking(self, _run: Any, targets: Any, *, folder: Path | None, write: Any) -> Iterator[_Observer]:
        self.targets, self.folder, self.end = [str(target) for target in targets], folder, "FAILED"

        def observe(events: JobEvents) -> None:
            self.metrics += [dict(event.values) for event in events if isinstance(event, Metrics)]
            self.logged += [entry for event in events if isinstance(event, Logged) for entry in event.entries]

        yield _Observer(observe, self)
        self.end = "FINISHED"


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    found = Tracker()
    monkeypatch.setattr("trainwright.tracking.tracking", found.tracking)
    return found


def operator(**more: Any) -> operators.TrainJobOperator:
    given = {
        "runtime": "torch-distributed",
        "command": ["true"],
        "tracking": '["mlflow:http://m"]',
        "logging": {"logs": "none"},
        **more,
    }
    return operators.TrainJobOperator(task_id="train", **given)


def test_metrics_go_to_the_trackers_while_the_task_waits(
    connected: EmbeddedCluster, set_status: Callable[..., Any], tracker: Tracker, tmp_path: Path
) -> None:
    import threading

    task = operator(workspace="pvc://claim?size=1Gi", workspace_path=str(tmp_path))
    kept_in = tmp_path / task_identity.task_identity(task_context()).folder
    kept_in.mkdir(parents=True)
    thread = threading.Thread(target=task.execute, args=(task_context(),), daemon=True)
    thread.start()
    (job,) = eventually(lambda: connected.list(TRAINJOB, "default").items)
    set_status(job, trainerStatus=STATUS)
    eventually(lambda: tracker.metrics)
    assert (tracker.metrics, tracker.end) == ([{"loss": "0.5"}], "FAILED")
    set_status(job, "Complete", trainerStatus=STATUS)
    thread.join(20)
    assert tracker.uid == job["metadata"]["uid"]
    assert (tracker.targets, tracker.folder, tracker.end) == (["mlflow:http://m"], tmp_path / "tracking", "FINISHED")
    assert json.loads((kept_in / "metrics.jsonl").read_bytes()) == {"report": 1, "loss": 0.5}


def test_deferred_task_reports_the_last_values_and_the_history_at_its_end(
    connected: EmbeddedCluster, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = {"loss": 0.5, "step": 10}
    monkeypatch.setattr("trainwright.operators.waiting.waiting_task.read_training_log", lambda *_: TrainingLog((logged,)))
    task = operator(deferrable=True)
    with pytest.raises(sdk_exceptions.TaskDeferred):
        task.execute(task_context())
    assert tracker.metrics == []
    (job,) = connected.list(TRAINJOB, "default").items
    place = {name: job["metadata"][name] for name in ("name", "namespace", "uid")}
    task.execute_complete(task_context(), {**place, "outcome": "succeeded", "metrics": {"loss": "0.25"}})
    assert (tracker.metrics, tracker.end) == ([{"loss": "0.25"}], "FINISHED")
    assert (tracker.logged, tracker.uid) == ([logged], place["uid"])


def test_job_of_a_deferred_task_is_stopped_where_its_trackers_are_not_known(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://m")
    with pytest.raises(sdk_exceptions.TaskDeferred):
        operator(tracking=["mlflow"], deferrable=True).execute(task_context())
    (job,) = connected.list(TRAINJOB, "default").items
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    place = {name: job["metadata"][name] for name in ("name", "namespace", "uid")}
    with pytest.raises(TrainJobDeadline):
        operator(tracking=["mlflow"]).execute_complete(task_context(), {**place, "outcome": "deadline", "message": "too long"})
    (job,) = connected.list(TRAINJOB, "default").items
    assert job["spec"]["suspend"] is True


def test_a_tracker_without_an_address_is_refused_before_a_job_is_submitted(connected: EmbeddedCluster) -> None:
    for more in ({"tracking": ["tensorboard"]}, {"tracking": ["other"]}, {"tracking": ["tensorboard"], "deferrable": True}):
        with pytest.raises(errors.NonRetryableError, match="tracking: "):
            operator(**more).execute(task_context())
    assert connected.list(TRAINJOB, "default").items == []
