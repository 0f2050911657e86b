"""What a task tells Airflow's metrics and its assets about its job, and how often it prints progress."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, operator, the_job
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.controlplane.embedded import EmbeddedCluster

sdk = OnFirstUse("airflow.sdk")
task_context = OnFirstUse("airflow.sdk.execution_time.context")

SetStatus = Callable[..., Any]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    fake = SimpleNamespace(incr=found.append, timing=lambda name, value: found.append((name, value)))
    monkeypatch.setattr("airflow.sdk.observability.stats.Stats", fake)
    return found


def test_a_deferred_job_is_counted_and_timed(connected: EmbeddedCluster, set_status: SetStatus, recorded: list[Any]) -> None:
    task = operator()
    trigger = deferred(task).trigger
    deferred(operator())
    assert recorded == ["trainwright.jobs.submitted", "trainwright.jobs.adopted"]
    recorded.clear()
    set_status(the_job(connected), "Complete")
    event = event_of(trigger)
    assert event["seconds"] == {}, "the trigger has seen only the end"
    seconds = {"queue": 2.5, "start": 4.0, "run": 60.0}
    operator().execute_complete(context(), {**event, "seconds": seconds})
    times = [(f"trainwright.jobs.{phase}_time", timedelta(seconds=value)) for phase, value in seconds.items()]
    assert recorded == ["trainwright.jobs.succeeded", *times]


def outlet_events(context_: dict[str, Any]) -> dict[str, Any]:
    return {**context_, "outlet_events": task_context.OutletEventAccessors()}


def test_an_export_describes_itself_in_the_events_of_its_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sdk.Asset("model", uri="s3://b/e")
    exported = {"uri": "s3://b/e/r/checkpoint-5", "digest": "sha256:d", "step": 5, "bytes": 9}
    metrics = {"eval_loss": 0.5, "grad_norm": float("nan")}
    asked = outlet_events(context())
    task = operators.ExportCheckpointOperator(task_id="export", export_uri="s3://b/e", outlets=[model])
    monkeypatch.setattr(task, "check_places", lambda *_: None)
    from contextlib import contextmanager

    steps = contextmanager(lambda _context, _run: iter([lambda step, arguments: {**exported, "metrics": metrics}]))
    monkeypatch.setattr(task, "steps", steps)
    asked["outlet_events"][model].extra["step"] = "mine"
    assert task.execute(asked)["uri"] == exported["uri"]
    extra = {"uri": exported["uri"], "digest": "sha256:d", "step": "mine", "metrics": {"eval_loss": 0.5}}
    assert asked["outlet_events"][model].extra == extra
