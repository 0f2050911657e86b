"""TrainJobSensor waits for a job of another task, with the same outcome as TrainJobOperator; only a user's end of it stops the job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, in_state, loss_report, named_event, operator, the_job
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import (
    Preempted,
    TrainJobDeleted,
    TrainJobFailed,
)
from trainwright.jobs.diagnosis.errors import Diverged
from trainwright.jobs.state.run_folder import run_folder
from trainwright.jobs.state.waiters import lease_annotations
from trainwright.operators.values.rendered_values import JobReference

sdk = OnFirstUse("airflow.sdk")
operator_bases = OnFirstUse("airflow.sdk.bases.operator")
cancellation = OnFirstUse("trainwright.operators.cancellation")
errors = OnFirstUse("trainwright.operators.errors")
hook = OnFirstUse("trainwright.operators.hook")
trigger_module = OnFirstUse("trainwright.operators.trigger")
named_job_trigger = OnFirstUse("trainwright.operators.named_job_trigger")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium


@pytest.fixture
def handle(connected: EmbeddedCluster) -> dict[str, Any]:
    """The XCom of a task that does not wait."""
    submitted: dict[str, Any] = operator(wait_for_completion=False).execute(context())
    return submitted


def sensor(trainjob: Any, **options: Any) -> operators.TrainJobSensor:
    return operators.TrainJobSensor(
        task_id="wait", trainjob=trainjob, **{"deferrable": True, "deferral": {"min_defer_seconds": 0}, **options}
    )


METRICS = {"trainerStatus": {"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": [{"name": "loss", "value": "0.3"}]}}


def test_a_plain_name_is_enough(connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any]) -> None:
    task = sensor(handle["trainjob"])
    assert task.start_from_trigger
    set_status(the_job(connected), "Complete", **METRICS)
    event = named_event(task)
    assert (event["outcome"], event["uid"], event["namespace"]) == ("succeeded", handle["uid"], "default")
    found = task.execute_complete(context(), event)
    assert found == task.execute(context())
    assert (found["metrics"], found["folder"]) == ({"loss": "0.3"}, run_folder("d/r"))


def test_a_sensor_that_starts_in_the_triggerer_survives_serialization() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    with sdk.DAG("d", schedule=None) as dag:
        sensor("job", timeout=60)
    again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag)))).get_task("wait")
    assert again.start_from_trigger
    assert again.start_trigger_args.timeout == timedelta(seconds=60)
    assert again.start_trigger_args.next_method == "execute_complete"


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_failure_is_the_report_of_the_job(
    connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any], deferrable: bool
) -> None:
    task = sensor(handle, deferrable=deferrable)
    event = {}
    if deferrable:
        trigger = deferred(task).trigger
        set_status(the_job(connected), "Failed")
        event = event_of(trigger)
        with pytest.raises(TrainJobFailed, match="FailedReason: the Failed message"):
            task.execute_complete(context(), event)
    set_status(the_job(connected), "Failed")
    with pytest.raises(TrainJobFailed, match="FailedReason: the Failed message") as raised:
        task.execute(context())
    assert raised.value.report is not None
    with pytest.raises(airflow_api.AirflowSkipException, match="TrainJobFailed"):
        sensor(handle, deferrable=deferrable, soft_fail=True).execute(context())


@pytest.mark.parametrize("connected_to", ["default", ""])
def test_sensor_whose_connection_is_wrong_fails_in_spite_of_soft_fail(
    connected: EmbeddedCluster, handle: dict[str, Any], monkeypatch: pytest.MonkeyPatch, connected_to: str
) -> None:
    trigger = deferred(sensor(handle, soft_fail=True)).trigger

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("wrong extra")

    monkeypatch.setattr(hook.TrainwrightHook, "connect", refuse)
    event = {"name": trigger.name, "namespace": connected_to, "uid": trigger.uid, "outcome": "error", "message": "wrong extra"}
    with pytest.raises(errors.NonRetryableError, match="wrong extra"):
        sensor(handle, soft_fail=True).execute_complete(context(), event)


def test_a_preempted_job_fails_since_only_its_own_task_submits_the_next(
    connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any], add_pod: Any
) -> None:
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}
    trigger = deferred(sensor(handle)).trigger
    add_pod(the_job(connected), phase="Failed", conditions=[disruption])
    set_status(the_job(connected), "Failed")
    with pytest.raises(Preempted):
        sensor(handle).execute_complete(context(), event_of(trigger))
    assert the_job(connected)["metadata"]["uid"] == handle["uid"]


@pytest.mark.parametrize("options", [{}, {"deferrable": False}, {"deferrable": False, "mode": "reschedule"}])
def test_a_job_that_does_not_exist_is_a_clear_error(connected: EmbeddedCluster, options: dict[str, Any]) -> None:
    task = sensor("gone", namespace="team", **options)
    wait: Callable[..., Any] = task.poke if task.mode == "reschedule" else task.execute
    with pytest.raises(TrainJobDeleted, match="there is no TrainJob team/gone: it was not submitted there, or has been deleted"):
        wait(context())


def test_a_job_that_does_not_exist_is_one_in_the_triggerer_too(connected: EmbeddedCluster) -> None:
    task = sensor("gone")
    with pytest.raises(TrainJobDeleted, match="there is no TrainJob default/gone"):
        task.execute_complete(context(), named_event(task))


def test_another_job_of_the_same_name_is_not_taken_for_it(connected: EmbeddedCluster, handle: dict[str, Any]) -> None:
    job = the_job(connected)
    connected.delete(TRAINJOB, name_of(job), "default")
    connected.create({**job, "metadata": {"name": name_of(job), "namespace": "default"}})
    with pytest.raises(TrainJobDeleted, match="was deleted, and created again since"):
        sensor(handle).execute(context())
    assert deferred(sensor(handle["trainjob"])).trigger.uid != handle["uid"]


def test_a_name_that_renders_to_nothing_is_refused(connected: EmbeddedCluster) -> None:
    for rendered in ("", " ", "{}", None):
        with pytest.raises(ValueError, match="trainjob: expected the name"):
            JobReference.parse(rendered)


@pytest.mark.parametrize("on_cancel", ["", "keep", "suspend"])
def test_the_timeout_is_airflows_and_the_job_is_left_alone_unless_told(
    connected: EmbeddedCluster, handle: dict[str, Any], on_cancel: str
) -> None:
    for options in ({}, {"deferrable": False}):
        task = sensor(handle, timeout=0.2, on_cancel=on_cancel, **options)
        with pytest.raises(airflow_api.AirflowSensorTimeout):
            task.execute_complete(context(), event_of(deferred(task).trigger)) if not options else task.execute(context())
        assert bool(the_job(connected)["spec"].get("suspend")) is (on_cancel == "suspend")
    with pytest.raises(airflow_api.AirflowSkipException, match="AirflowSensorTimeout"):
        sensor(handle, timeout=0.2, deferrable=False, soft_fail=True).execute(context())


def test_airflows_own_timeout_of_a_task_that_started_in_the_triggerer(connected: EmbeddedCluster, handle: dict[str, Any]) -> None:
    event = {"error": operator_bases.TriggerFailureReason.TRIGGER_TIMEOUT.value, "traceback": []}
    with pytest.raises(airflow_api.AirflowSensorTimeout):
        sensor(handle["trainjob"]).resume_execution(operator_bases.TRIGGER_FAIL_REPR, event, context())
    assert not the_job(connected)["spec"].get("suspend")


def test_sensor_waits_in_the_worker_if_only_the_triggerer_is_refused(
    connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_hook: Any, _settings: Any) -> Any:
        raise Forbidden("not you")

    task = sensor(handle["trainjob"])
    with monkeypatch.context() as patched:
        patched.setattr(hook.TrainwrightHook, "connect", refuse)
        event = named_event(task)
        with pytest.raises(Forbidden, match=f"^TrainJob {handle['trainjob']} goes on, but is not watched any more: not you$"):
            task.execute_complete(context(), event)
    set_status(the_job(connected), "Complete")
    assert task.execute_complete(context(), event)["trainjob"] == handle["trainjob"]


def trigger_of(task: operators.TrainJobSensor, try_number: int = 1) -> Any:
    """The trigger of a sensor, which has found its job: that of its deferral, or the one with which it starts."""
    if not task.start_from_trigger:
        return deferred(task).trigger
    assert task.start_trigger_args is not None
    trigger = named_job_trigger.NamedTrainJobTrigger(**json.loads(json.dumps(task.start_trigger_args.trigger_kwargs)))
    trigger.task_instance = context(try_number=try_number)["ti"]

    async def begin() -> None:
        waiting = asyncio.create_task(anext(trigger.run()))
        while not trigger_module.is_awaited_here(trigger.uid):
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})

    asyncio.run(asyncio.wait_for(begin(), 30))
    return trigger


KILLS = [
    ("failed", "", True),
    ("skipped", "", True),
    ("failed", "keep", False),
    ("failed", "suspend", True),
    ("deferred", "", False),
]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(("state", "on_cancel", "is_stopped"), [*KILLS, ("", "", False), ("", "suspend", False)])
def test_a_user_who_ends_the_sensor_suspends_the_job(
    connected: EmbeddedCluster,
    handle: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    on_cancel: str,
    is_stopped: bool,
    by_name: bool,
) -> None:
    trigger = trigger_of(sensor(handle["trainjob"] if by_name else handle, on_cancel=on_cancel))
    in_state(monkeypatch, state)
    asyncio.run(trigger.on_kill())
    assert bool(the_job(connected)["spec"].get("suspend")) is is_stopped


@pytest.mark.parametrize(
    ("noted", "is_stopped"),
    [
        ({names.AWAITED_BY_ANNOTATION: '{"dag_id": "another", "run_id": "r", "task_id": "t"}'}, False),
        ({names.AWAITED_BY_ANNOTATION: "[1"}, False),
        (lease_annotations(600, datetime.now(UTC)), False),
        (lease_annotations(600, datetime.now(UTC) - timedelta(seconds=700)), True),
    ],
)
@pytest.mark.parametrize("in_worker", [False, True])
def test_sensor_suspends_no_job_that_another_task_waits_for(
    connected: EmbeddedCluster,
    handle: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    noted: dict[str, str],
    is_stopped: bool,
    in_worker: bool,
) -> None:
    trigger = trigger_of(sensor(handle))
    connected.patch(TRAINJOB, handle["trainjob"], {"metadata": {"annotations": noted}}, "default")
    in_state(monkeypatch, "failed")
    if in_worker:
        cancellation.on_signal_of_sensor(context(), "")(connected, the_job(connected))
    else:
        asyncio.run(trigger.on_kill())
    assert bool(the_job(connected)["spec"].get("suspend")) is is_stopped


SIGNALS = [
    *(("failed", on_cancel, 1, on_cancel != "keep") for on_cancel in ("", "keep", "suspend")),
    *(("restarting", on_cancel, 1, False) for on_cancel in ("", "keep", "suspend")),
    *(("running", on_cancel, 1, False) for on_cancel in ("", "keep", "suspend")),
    *(("running", on_cancel, 3, on_cancel == "suspend") for on_cancel in ("", "keep", "suspend")),
]


@pytest.mark.parametrize(("state", "on_cancel", "try_number", "is_stopped"), SIGNALS)
def test_sigterm_of_a_sensor_suspends_the_job_only_for_its_user(
    connected: EmbeddedCluster,
    handle: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    on_cancel: str,
    try_number: int,
    is_stopped: bool,
) -> None:
    in_state(monkeypatch, state)
    cancellation.on_signal_of_sensor(context(try_number=try_number), on_cancel)(connected, the_job(connected))
    assert bool(the_job(connected)["spec"].get("suspend")) is is_stopped


@pytest.mark.parametrize("by_name", [False, True])
def test_the_next_try_of_an_ended_sensor_resumes_the_job(
    connected: EmbeddedCluster, handle: dict[str, Any], monkeypatch: pytest.MonkeyPatch, by_name: bool
) -> None:
    task = sensor(handle["trainjob"] if by_name else handle)
    in_state(monkeypatch, "failed")
    asyncio.run(trigger_of(task).on_kill())
    trigger_of(task)
    assert the_job(connected)["spec"]["suspend"] is True, "a first try does not know who has suspended it"
    if by_name:
        trigger_of(task, try_number=2)
    else:
        with pytest.raises(airflow_api.TaskDeferred):
            task.execute(context(try_number=2))
    assert not the_job(connected)["spec"].get("suspend")


def test_in_mode_reschedule_the_job_is_read_now_and_then(
    connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any]
) -> None:
    task = sensor(handle, deferrable=False, mode="reschedule")
    assert not task.poke(context())
    set_status(the_job(connected), "Complete", **METRICS)
    poked = task.poke(context())
    assert poked.is_done
    assert poked.xcom_value == sensor(handle).execute(context())


@pytest.mark.parametrize("options", [{}, {"deferrable": False}, {"deferrable": False, "mode": "reschedule"}])
def test_training_that_has_diverged_fails_the_sensor(
    connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any], options: dict[str, Any]
) -> None:
    set_status(the_job(connected), "Complete", **loss_report(9, "nan"))
    task, lenient = sensor(handle, **options), sensor(handle, limits={"fail_on_divergence": False}, **options)

    def wait(one: operators.TrainJobSensor) -> Any:
        return one.poke(context()) if options.get("mode") else one.execute(context())

    with pytest.raises((errors.NonRetryableError, Diverged), match="loss is nan since step 9"):
        wait(task)
    assert wait(lenient)


def test_poke_sees_what_the_running_training_counts(
    connected: EmbeddedCluster, handle: dict[str, Any], set_status: Callable[..., Any]
) -> None:
    running = loss_report(9, "nan")
    task = sensor(handle, deferrable=False, mode="reschedule", on_cancel="suspend")
    set_status(the_job(connected), **running)
    assert not task.poke(context())
    running["trainerStatus"]["metrics"] += [
        {"name": "loss_not_finite_since", "value": "7"},
        {"name": "loss_not_finite_reports", "value": "3"},
    ]
    set_status(the_job(connected), **running)
    with pytest.raises(Diverged, match="since step 7"):
        task.poke(context())
    assert the_job(connected)["spec"]["suspend"] is True


def test_sensor_of_others_may_set_its_templates_after_ours() -> None:
    class Own(operators.TrainJobSensor):
        template_fields = (*operators.TrainJobSensor.template_fields, "more")

        def __init__(self, *, more: str, **given: Any):
            super().__init__(**given)
            self.more = more

    assert Own(task_id="t", trainjob="j", more="m", deferrable=False).more == "m"
