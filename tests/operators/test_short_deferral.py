"""A deferral that Airflow may take for a failure is warned of where the task runs, not where its DAG is parsed."""

from __future__ import annotations

from typing import Any

import pytest
from deferred_tasks import context, named_event, operator
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.operators.deferral import deferral_options

waiting_task = OnFirstUse("trainwright.operators.waiting.waiting_task")
named_job_trigger = OnFirstUse("trainwright.operators.jobs.named_job_trigger")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
SAID = "an event within 10 s can arrive before the executor's report, and Airflow 3.3 then fails the task"


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings so far."""
    found: list[str] = []

    class Log:
        def warning(self, text: str, *values: Any) -> None:
            found.append(text % values)

    for module in (waiting_task, named_job_trigger):
        monkeypatch.setattr(
            module, "warn_of_short_deferral", lambda _log, seconds: deferral_options.warn_of_short_deferral(Log(), seconds)
        )
    return found


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(2, [f"min_defer_seconds=2: {SAID}"]), (9.5, [f"min_defer_seconds=9.5: {SAID}"]), (10, []), (30, [])],
)
def test_task_warns_once_when_it_defers(
    connected: EmbeddedCluster, warned: list[str], seconds: float, expected: list[str]
) -> None:
    task = operator(deferral={"min_defer_seconds": seconds})
    assert warned == []
    with pytest.raises(airflow_api.TaskDeferred):
        task.execute(context())
    assert warned == expected


def test_sensor_that_starts_in_the_triggerer_warns_there(connected: EmbeddedCluster, warned: list[str]) -> None:
    task = operators.TrainJobSensor(task_id="t", trainjob="none", deferrable=True, deferral={"min_defer_seconds": 0})
    assert task.start_from_trigger
    assert warned == []
    assert named_event(task)["outcome"] == "deleted"
    assert warned == [f"min_defer_seconds=0: {SAID}"]
