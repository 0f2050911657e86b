"""TrainJobOperator and TrainJobSensor outside of Airflow: their tasks, what these hand to the triggerer, and its events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from factories import task_context
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster

operator_bases = OnFirstUse("airflow.sdk.bases.operator")
named_job_trigger = OnFirstUse("trainwright.operators.named_job_trigger")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")


def context(**instance: Any) -> dict[str, Any]:
    """The context of the task that `operator` makes."""
    return task_context(retries=2, **instance)


def operator(**options: Any) -> operators.TrainJobOperator:
    defaults = {
        "task_id": "train",
        "workspace": "pvc://w",
        "deferrable": True,
        "retries": 2,
        "deferral": {"min_defer_seconds": 0},
    }
    return operators.TrainJobOperator(**{**defaults, **options})


def deferred(task: operators.TrainJobOperator | operators.TrainJobSensor, **instance: int) -> airflow_api.TaskDeferred:
    with pytest.raises(airflow_api.TaskDeferred) as raised:
        task.execute(context(**instance))
    return raised.value


def event_of(trigger: Any) -> dict[str, Any]:
    """Return the one event of a trigger, which is recreated from its serialized form."""
    path, arguments = trigger.serialize()
    assert path == "trainwright.operators.trigger.TrainJobTrigger"
    again = operators.TrainJobTrigger(**json.loads(json.dumps(arguments)))

    async def first() -> dict[str, Any]:
        events = [event async for event in again.run()]
        assert len(events) == 1
        payload: dict[str, Any] = events[0].payload
        return payload

    return asyncio.run(asyncio.wait_for(first(), 30))


def named_event(task: operators.TrainJobSensor) -> dict[str, Any]:
    """Return the event of the trigger with which a task starts, recreated from its serialized form."""
    arguments = task.start_trigger_args
    assert arguments is not None
    trigger = named_job_trigger.NamedTrainJobTrigger(**json.loads(json.dumps(arguments.trigger_kwargs)))
    assert trigger.serialize() == (arguments.trigger_cls, arguments.trigger_kwargs)

    async def first() -> dict[str, Any]:
        payload: dict[str, Any] = (await anext(trigger.run())).payload
        return payload

    return asyncio.run(asyncio.wait_for(first(), 30))


def fail(error: str) -> tuple[str, dict[str, Any]]:
    return operator_bases.TRIGGER_FAIL_REPR, {"error": error, "traceback": ["a line"]}


def jobs(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    return cluster.list(TRAINJOB).items


def the_job(cluster: EmbeddedCluster) -> dict[str, Any]:
    (job,) = jobs(cluster)
    return job


def loss_report(step: int, loss: str) -> dict[str, Any]:
    metrics = [{"name": "loss", "value": loss}, {"name": "step", "value": str(step)}]
    running = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    return {"jobsStatus": [running], "trainerStatus": {"lastUpdatedTime": f"2026-01-01T00:00:{step:02}Z", "metrics": metrics}}


def in_state(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(airflow_api.TaskId, "state", lambda _self: state)
