"""What a task tells Airflow's metrics and its assets about its job, and how often it prints progress."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, operator, the_job
from support.manual_clock import ManualClock
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api.phase import Phase
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.diagnosis.errors import TrainJobFailed
from trainwright.jobs.logs.log_line import LogLine
from trainwright.jobs.state.run_folder import run_folder
from trainwright.jobs.wait.event_printer import EventPrinter
from trainwright.jobs.wait.job_events import LogOutput, Metrics, PhaseChanged, PodFailed, Progressed, StatusMessage
from trainwright.operators.reporting import stats
from trainwright.operators.reporting.task_event_printer import PROGRESS_SECONDS, TaskEventPrinter

sdk = OnFirstUse("airflow.sdk")
task_context = OnFirstUse("airflow.sdk.execution_time.context")
errors = OnFirstUse("trainwright.operators.errors")
waiting_task = OnFirstUse("trainwright.operators.waiting.waiting_task")

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


def test_a_failed_job_is_counted_once(connected: EmbeddedCluster, set_status: SetStatus, recorded: list[Any]) -> None:
    trigger = deferred(operator()).trigger
    set_status(the_job(connected), "Failed")
    recorded.clear()
    with pytest.raises((TrainJobFailed, errors.NonRetryableError)):
        operator().execute_complete(context(), event_of(trigger))
    assert recorded == ["trainwright.jobs.failed"]


@pytest.mark.medium
def test_a_job_that_the_worker_waits_for_is_counted(
    connected: EmbeddedCluster, set_status: SetStatus, recorded: list[Any]
) -> None:
    trigger = deferred(operator()).trigger
    set_status(the_job(connected), "Complete")
    recorded.clear()
    operator(deferrable=False).execute(context())
    assert recorded == ["trainwright.jobs.adopted", "trainwright.jobs.succeeded"]
    assert trigger.name


def test_errors_other_than_the_end_of_a_job_are_not_counted(recorded: list[Any]) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), waiting_task.report_end(TaskEventPrinter(lambda _line: None)):
            raise error
    assert not recorded


def test_airflow_has_statistics_where_they_are_looked_for() -> None:
    from airflow.sdk.observability.stats import Stats

    assert stats.airflow_stats() is Stats
    stats.count("submitted")
    stats.record_times({"run": 1.0})


def test_without_statistics_nothing_is_recorded() -> None:
    places = ("trainwright.no_such_module", "json")
    assert stats.airflow_stats(places) is None
    stats.count("submitted", places)
    stats.record_times({"run": 1.0}, places)


def test_mere_progress_is_printed_seldom_and_all_else_at_once() -> None:
    lines: list[str] = []
    clock = ManualClock()
    show = TaskEventPrinter(lines.append, clock)
    show((PhaseChanged(Phase.Queued), StatusMessage("no room")))
    show((StatusMessage("no quota"),))
    show((StatusMessage(""), PhaseChanged(Phase.Running)))
    assert len(lines) == 3, "phases and reasons at once"
    for percent in range(50):
        clock.now += 1
        show((Progressed(percent, None), Metrics((("loss", str(percent)),))))
    assert len(lines) == 3 + 5, lines
    clock.now += 1
    show((PodFailed("pod x failed"), LogOutput(LogLine("node-0-0", "text"))))
    assert lines[8:10] == ["pod x failed", "[node-0-0] text"]
    show((Progressed(90, None),))
    show((PhaseChanged(Phase.Succeeded), Metrics((("loss", "0.1"),))))
    assert "0.1" in lines[-1]
    assert PROGRESS_SECONDS == 10


def test_other_printers_print_all_progress() -> None:
    lines: list[str] = []
    show = EventPrinter(lines.append)
    show((PhaseChanged(Phase.Running),))
    for percent in range(5):
        show((Progressed(percent, None),))
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("phases", "seconds"),
    [
        ("Queued Starting Running Succeeded", {"queue": 1, "start": 1, "run": 1}),
        ("Suspended Queued Running Restarting Running Failed", {"queue": 2, "run": 3}),
        ("Running Succeeded", {}),
        ("Running Starting Running Succeeded", {"start": 1, "run": 1}),
        ("Succeeded", {}),
        ("Queued", {}),
    ],
)
def test_phases_are_timed_as_far_as_they_were_seen(phases: str, seconds: dict[str, float]) -> None:
    clock = ManualClock()
    show = TaskEventPrinter(lambda _line: None, clock)
    for phase in phases.split():
        show((PhaseChanged(Phase(phase)),))
        show((Progressed(1, None),))
        clock.now += 1
    assert show.seconds == seconds


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


@pytest.mark.parametrize("place", [{"workspace": "pvc://w"}, {"workspace": "", "run": {"workspace": "pvc://w"}}])
def test_a_training_describes_itself_in_the_events_of_its_assets(
    connected: EmbeddedCluster, set_status: SetStatus, place: dict[str, Any]
) -> None:
    trained = sdk.Asset("trained", uri="x://trained")
    trigger = deferred(operator(**place)).trigger
    set_status(
        the_job(connected),
        "Complete",
        trainerStatus={"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": [{"name": "loss", "value": "0.3"}]},
    )
    asked = outlet_events(context())
    operator(outlets=[trained], **place).execute_complete(asked, event_of(trigger))
    extra = {"uri": f"pvc://w/{run_folder('d/r')}", "trainjob": trigger.name, "namespace": "default", "metrics": {"loss": "0.3"}}
    assert asked["outlet_events"][trained].extra == extra
    operator().execute_complete(context(), event_of(trigger))
