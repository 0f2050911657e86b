"""TrainJobOperator deferred: what is handed to the triggerer, what the trigger says, and what the task makes of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, fail, in_state, jobs, loss_report, operator, the_job
from factories import container_status, terminated
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright import operators
from trainwright.api import names
from trainwright.api.errors import Unauthorized
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.objects import name_of
from trainwright.api.phase import is_superseded
from trainwright.backoff import Backoff
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Forbidden, RuntimeNotFound, TrainJobDeadline, TrainJobDeleted, TrainJobFailed
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.state.attempts import attempt_of, needs_new_attempt
from trainwright.jobs.state.run_folder import run_folder
from trainwright.jobs.wait import job_watch, observer_memory
from trainwright.runtimes.launch import CANNOT_RUN, CANNOT_RUN_MARK

task_identity = OnFirstUse("trainwright.operators.values.task_identity")
cancellation = OnFirstUse("trainwright.operators.cancellation")
trigger_module = OnFirstUse("trainwright.operators.trigger")
waiting_task = OnFirstUse("trainwright.operators.waiting.waiting_task")
errors = OnFirstUse("trainwright.operators.errors")
hook = OnFirstUse("trainwright.operators.hook")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
SetStatus = Callable[..., Any]


def test_execution_timeout_is_the_triggers_deadline_and_airflows_own_comes_later(connected: EmbeddedCluster) -> None:
    from datetime import timedelta

    before = time.time()
    handed = deferred(operator(execution_timeout=timedelta(hours=1)))
    assert before + 3600 <= handed.trigger.until <= time.time() + 3600
    assert handed.timeout is not None
    assert handed.timeout > timedelta(hours=1, seconds=60)


def test_success_comes_back_as_the_result(connected: EmbeddedCluster, set_status: SetStatus, add_pod: Any) -> None:
    task = operator()
    trigger = deferred(task).trigger
    metrics = [{"name": "loss", "value": "0.3"}]
    reported = {"progressPercentage": 100, "lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": metrics}
    status = container_status(terminated(0, "Completed", "2026-01-01T01:30:00Z"))
    add_pod(the_job(connected), phase="Succeeded", startTime="2026-01-01T00:00:00Z", containerStatuses=[status])
    set_status(the_job(connected), "Complete", trainerStatus=reported)
    event = event_of(trigger)
    assert event["outcome"] == "succeeded"
    connected.delete(TRAINJOB, event["name"], "default")  # as its TTL does while the task waits for a worker
    result = task.execute_complete(context(), event)
    known = {"trainjob": event["name"], "namespace": "default", "metrics": {"loss": "0.3"}}
    start, used = "what is not known: it was deleted since", {"node_hours": 1.5, "gpu_hours": 0.0}
    assert result == {**known, "results": None, "folder": run_folder("d/r"), "started_from": start, "usage": used}


def test_program_that_can_never_run_ends_the_job_and_fails_without_retries(
    connected: EmbeddedCluster, set_status: SetStatus, add_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_memory, "_CONFIRMED_SECONDS", 0.2)
    task = operator(limits={"restarts": 5})
    trigger, job = deferred(task).trigger, the_job(connected)
    message = f"{CANNOT_RUN_MARK}No module named 'x'"
    ended = terminated(CANNOT_RUN, at="2100-01-01T00:00:05Z", message=message)
    status = container_status({"running": {"startedAt": "2100-01-01T00:00:06Z"}}, ready=True, restartCount=1, lastState=ended)
    add_pod(job, 1, phase="Running", containerStatuses=[status])
    set_status(job, jobsStatus=[{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}])
    event = event_of(trigger)
    assert event["outcome"] == "failing"
    connected.delete(POD, f"{name_of(job)}-node-0-1-abcde", "default")
    with pytest.raises(
        errors.NonRetryableError, match=r"CannotRun: TrainJob .* failed: pod \S+ exited 15: .*No module named 'x'\n"
    ):
        task.execute_complete(context(), event)
    left = the_job(connected)
    assert left["spec"]["suspend"] is True
    assert needs_new_attempt(left)


@pytest.mark.parametrize(("reason", "in_vain"), [("OOMKilled", True), ("Error", False)])
def test_a_failure_that_will_come_again_is_not_tried_again(
    connected: EmbeddedCluster, set_status: SetStatus, add_pod: Any, reason: str, in_vain: bool
) -> None:
    task = operator()
    trigger = deferred(task).trigger
    status = container_status(terminated(137 if in_vain else 1, reason))
    add_pod(the_job(connected), phase="Failed", containerStatuses=[status])
    set_status(the_job(connected), "Failed")
    event = event_of(trigger)
    with pytest.raises(airflow_api.AirflowFailException if in_vain else TrainJobFailed) as raised:
        task.execute_complete(context(), event)
    assert isinstance(raised.value, errors.NonRetryableError) is in_vain
    assert raised.value.report.cause.reason == reason


def test_refused_requests_are_not_retried_but_full_quotas_are(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        errors.NonRetryableError, match=r"RuntimeNotFound: spec\.RuntimeRef: there is no ClusterTrainingRuntime 'nothing'"
    ) as raised:
        operator(runtime="nothing").execute(context())
    assert isinstance(raised.value.error, RuntimeNotFound)

    def full(_obj: Any, **_options: Any) -> Any:
        raise Forbidden("exceeded quota: gpus")

    monkeypatch.setattr(connected, "create", full)
    with pytest.raises(Forbidden, match="exceeded quota"):
        operator().execute(context())


def test_a_job_that_is_deleted_or_replaced_is_gone(connected: EmbeddedCluster) -> None:
    task = operator()
    trigger = deferred(task).trigger
    job = the_job(connected)
    connected.delete(TRAINJOB, job["metadata"]["name"], "default")
    connected.create({**job, "metadata": {"name": job["metadata"]["name"], "namespace": "default"}})
    event = event_of(trigger)
    assert event["outcome"] == "deleted"
    with pytest.raises(TrainJobDeleted, match="was deleted while"):
        task.execute_complete(context(), event)


@pytest.mark.parametrize("sensor", [False, True], ids=["operator", "sensor"])
@pytest.mark.parametrize("outcome", ["deadline", "stuck", "failing", "failed", "error", "succeeded"])
def test_an_event_does_not_touch_a_job_that_has_taken_the_name(connected: EmbeddedCluster, outcome: str, sensor: bool) -> None:
    deferred(operator())
    job = the_job(connected)
    place = {name: job["metadata"][name] for name in ("name", "namespace", "uid")}
    connected.delete(TRAINJOB, place["name"], "default")
    other = connected.create({**job, "metadata": {"name": place["name"], "namespace": "default"}})
    event = {
        **place,
        "outcome": outcome,
        "what": "run",
        "message": "late",
        "submission_mode": "trainjob",
        "metrics": {"loss": "1"},
    }
    task = operators.TrainJobSensor(task_id="wait", trainjob=place["name"], on_cancel="delete") if sensor else operator()
    if outcome == "succeeded":
        result = task.execute_complete(context(), event)
        assert result["metrics"] == {"loss": "1"}
        assert result["results"] is None
    else:
        with pytest.raises(TrainJobDeleted, match="was deleted since"):
            task.execute_complete(context(), event)
    assert the_job(connected) == other


@pytest.mark.parametrize("stopping", ["suspend", "delete", "keep"])
def test_a_deadline_stops_the_job(connected: EmbeddedCluster, stopping: str) -> None:
    task = operator(limits={"start_timeout_seconds": 1}, ending={"on_cancel": stopping})
    event = event_of(deferred(task).trigger)
    assert event["outcome"] == "deadline"
    with pytest.raises(TrainJobDeadline, match=r"was Starting for more than 1 s"):
        task.execute_complete(context(), event)
    job = the_job(connected)
    assert ("deletionTimestamp" in job["metadata"]) is (stopping == "delete")
    assert bool(job["spec"].get("suspend")) is (stopping == "suspend")


@pytest.mark.parametrize(("outcome", "what"), [("deadline", "start"), ("stuck", "CannotStart"), ("stuck", "NodeLost")])
def test_a_job_that_succeeded_before_it_was_given_up_ends_its_task_well(
    connected: EmbeddedCluster, set_status: SetStatus, outcome: str, what: str
) -> None:
    task = operator()
    trigger = deferred(task).trigger
    set_status(the_job(connected), "Complete")
    event = {"name": trigger.name, "namespace": "default", "uid": trigger.uid, "outcome": outcome, "what": what, "message": "m"}
    assert task.execute_complete(context(), event)["trainjob"] == trigger.name
    assert not the_job(connected)["spec"].get("suspend")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Forbidden("not you"), "not you"),
        (ValueError("a wrong setting"), "ValueError: a wrong setting"),
        (KeyError("a fault"), "KeyError: 'a fault'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_worker_waits_for_a_job_that_only_the_triggerer_cannot_reach(
    connected: EmbeddedCluster, set_status: SetStatus, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    task, warned = operator(), list[str]()
    trigger = deferred(task).trigger

    def refuse(_hook: Any, _settings: Any) -> Any:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(hook.TrainwrightHook, "connect", refuse)
        event = event_of(trigger)
    assert (event["outcome"], event["message"]) == ("error", message)
    monkeypatch.setattr(task.log, "warning", lambda text, *values: warned.append(text % values))
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(task.execute_complete(context(), event)))
    waiting.start()
    eventually(lambda: warned == [f"TrainJob default/{trigger.name} is waited for in the worker: {message}"], 20)
    assert not the_job(connected)["spec"].get("suspend")
    set_status(the_job(connected), "Complete")
    waiting.join(30)
    assert results[0]["trainjob"] == trigger.name


def test_job_that_cannot_be_read_is_named_with_its_outcome(connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    task = operator()
    trigger = deferred(task).trigger

    def refuse(*_: Any, **__: Any) -> Any:
        raise Unauthorized("Unauthorized")

    monkeypatch.setattr(job_watch, "ACCESS_LOST_SECONDS", 0.2)
    for verb in ("get", "list", "watch"):
        monkeypatch.setattr(connected, verb, refuse)
    place = {"name": trigger.name, "namespace": "default", "uid": trigger.uid}
    with pytest.raises(Unauthorized, match=f"^TrainJob default/{trigger.name} failed; it cannot be read: Unauthorized$"):
        task.execute_complete(context(), {**place, "outcome": "failed", "message": ""})


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        ("deferred", False),
        ("failed", True),
        ("success", True),
        ("", True),
        ("absent", True),
        ("scheduled", False),
        ("queued", False),
        ("running", False),
        ("up_for_retry", False),
    ],
)
def test_a_users_kill_stops_the_job_and_another_triggerer_does_not(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, state: str, stopped: bool
) -> None:
    trigger = deferred(operator()).trigger
    in_state(monkeypatch, state)
    asyncio.run(trigger.on_kill())
    assert bool(the_job(connected)["spec"].get("suspend")) is stopped


def test_a_kill_of_one_job_leaves_its_successor_alone(connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = deferred(operator()).trigger
    job = the_job(connected)
    connected.delete(TRAINJOB, job["metadata"]["name"], "default")
    connected.create({**job, "metadata": {"name": job["metadata"]["name"], "namespace": "default"}})
    in_state(monkeypatch, "failed")
    asyncio.run(trigger.on_kill())
    assert not the_job(connected)["spec"].get("suspend")


def test_a_broken_trigger_of_a_job_that_is_gone_is_airflows_error(connected: EmbeddedCluster) -> None:
    with pytest.raises(airflow_api.TaskDeferralError):
        operator().resume_execution(*fail("Trigger failure"), context())
    assert not jobs(connected)


@pytest.mark.parametrize(
    ("state", "try_number", "suspended", "superseded"),
    [
        ("running", 1, False, False),  # the worker goes away, a retry comes
        ("running", 3, True, False),  # no retry left
        ("restarting", 1, True, True),  # cleared while it ran
        ("failed", 1, True, False),
        ("success", 1, True, False),
        ("absent", 1, True, False),  # its DAG run was deleted
        ("", 3, False, False),  # a scheduler that starts anew runs the same try again
        ("scheduled", 3, False, False),
        ("queued", 3, False, False),
        ("deferred", 3, False, False),
    ],
)
def test_effect_of_a_signal_depends_on_the_state_of_the_task(
    connected: EmbeddedCluster,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    try_number: int,
    suspended: bool,
    superseded: bool,
) -> None:
    deferred(operator())
    in_state(monkeypatch, state)
    words = cancellation.on_signal(context(try_number=try_number), "suspend")(connected, the_job(connected))
    job = the_job(connected)
    assert bool(job["spec"].get("suspend")) is suspended
    assert is_superseded(job) is superseded
    assert words


@pytest.mark.parametrize(("try_number", "suspended"), [(2, False), (3, True)])
def test_a_job_is_stopped_without_an_answer_only_if_no_retry_is_left(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, try_number: int, suspended: bool
) -> None:
    deferred(operator())
    asked = threading.Event()
    monkeypatch.setattr(airflow_api.TaskId, "state", lambda _task: str(asked.wait(60)))
    monkeypatch.setattr(cancellation, "ANSWER_SECONDS", 0.05)
    cancellation.on_signal(context(try_number=try_number), "suspend")(connected, the_job(connected))
    asked.set()
    assert bool(the_job(connected)["spec"].get("suspend")) is suspended


def test_a_worker_whose_task_another_one_has_taken_over_leaves_the_job_alone(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the scheduler was killed: the next one runs the same try again, beside the old worker, which then gets a signal."""
    deferred(operator())
    old, process = cancellation.on_signal(context(try_number=3), "suspend"), cancellation.this_process()
    in_state(monkeypatch, "running")
    monkeypatch.setattr(task_identity, "this_process", lambda: "another")
    deferred(operator(), try_number=3)
    assert cancellation.this_process() == process
    old(connected, the_job(connected))
    assert not the_job(connected)["spec"].get("suspend")
    monkeypatch.undo()


@pytest.mark.parametrize("in_this_process", [False, True])
def test_sigterm_of_a_worker_that_has_just_deferred_leaves_the_job_to_the_triggerer(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, in_this_process: bool
) -> None:
    """Airflow calls on_kill in both. Only `airflow tasks test` waits in the process of the task."""
    ended = threading.Event()
    monkeypatch.setattr(waiting_task.signal, "pthread_kill", lambda *_: ended.set())
    monkeypatch.setattr(waiting_task.os, "_exit", lambda _code: None)
    monkeypatch.setattr(waiting_task, "_TEST_END_SECONDS", 0.0)
    monkeypatch.setattr(waiting_task, "_TEST_BEGIN_SECONDS", 0.2)
    task = operator()
    trigger = deferred(task).trigger
    if in_this_process:
        monkeypatch.setattr(trigger_module, "_awaited", {trigger.uid})
    task.on_kill()
    for thread in threading.enumerate():
        if thread.name == "end-of-test":
            thread.join(20)
    assert ended.is_set() is in_this_process
    assert bool(the_job(connected)["spec"].get("suspend")) is in_this_process


@pytest.mark.parametrize("signalled", [True, False])
def test_a_job_that_is_kept_does_not_train_beside_the_one_after_a_clear(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, signalled: bool
) -> None:
    deferred(operator(ending={"on_cancel": "keep"}))
    first = the_job(connected)
    if signalled:
        in_state(monkeypatch, "restarting")
        cancellation.on_signal(context(), "keep")(connected, first)
    deferred(operator(ending={"on_cancel": "keep"}), max_tries=9)
    stopped, second = sorted(jobs(connected), key=attempt_of)
    assert (name_of(stopped), stopped["spec"]["suspend"]) == (name_of(first), True)
    assert not second["spec"].get("suspend")


def test_a_signal_before_the_deferral_leaves_nothing_unwatched(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    in_state(monkeypatch, "failed")
    create = connected.create

    def kill_after(obj: dict[str, Any], **options: Any) -> dict[str, Any]:
        made = create(obj, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return made

    monkeypatch.setattr(connected, "create", kill_after)
    with pytest.raises(Cancelled, match="before it was deferred"):
        operator().execute(context())
    assert the_job(connected)["spec"]["suspend"] is True


def test_many_waiting_tasks_share_one_watch(connected: EmbeddedCluster, set_status: SetStatus) -> None:
    lists: list[Any] = []
    plain = connected.list

    def counted(*arguments: Any, **more: Any) -> Any:
        if arguments[0] == TRAINJOB:
            lists.append(arguments)
        return plain(*arguments, **more)

    triggers = []
    for number in range(20):
        triggers.append(deferred(operator(run_id=f"run-{number}")).trigger)

    async def all_of_them() -> list[Any]:
        waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: eventually(lambda: lists))
        for job in plain(TRAINJOB).items:
            set_status(job, "Complete")
        return [event.payload["outcome"] for event in await asyncio.gather(*waiting)]

    connected.list = counted  # type: ignore[method-assign]
    assert asyncio.run(all_of_them()) == ["succeeded"] * 20
    assert len(lists) == 1


class WithLog(DelegatingCluster):
    """The cluster, and what the pod of rank 0 has printed."""

    default_namespace = "default"

    def __init__(self, cluster: EmbeddedCluster, lines: list[str]):
        super().__init__(cluster)
        self.lines = lines

    def logs(self, *_: Any, **__: Any) -> Any:
        yield "".join(f"2026-01-01T00:00:00.{n:09}Z {line}\n" for n, line in enumerate(self.lines)).encode()


def said_by(trigger: Any, source: WithLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a trigger logs that follows its job there."""
    said: list[str] = []
    monkeypatch.setattr(type(trigger.log), "info", lambda _log, _form, *words: said.append(str(words[0])), raising=False)
    monkeypatch.setattr(hook.TrainwrightHook, "connect", lambda _hook, _settings: source)
    return said


def test_a_triggerer_shows_the_log_from_where_the_one_before_has_ended(
    connected: EmbeddedCluster, set_status: SetStatus, add_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one from its beginning, however long the job has run by then, and the last one to its end."""
    trigger = deferred(operator(deferral={"min_defer_seconds": 0, "log_poll_interval": 0.05})).trigger
    job, source = the_job(connected), WithLog(connected, ["a", "b"])
    said = said_by(trigger, source, monkeypatch)
    add_pod(job, phase="Running")
    set_status(job, jobsStatus=[{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}])

    async def until_noted() -> None:
        waiting = asyncio.ensure_future(anext(trigger.run()))
        noted = names.LOG_SHOWN_ANNOTATION
        await asyncio.to_thread(lambda: eventually(lambda: noted in the_job(connected)["metadata"]["annotations"]))
        waiting.cancel()
        await asyncio.wait({waiting})

    asyncio.run(until_noted())
    source.lines += ["c", "d"]  # while no triggerer runs
    set_status(job, "Complete")
    assert event_of(trigger)["outcome"] == "succeeded"
    assert [line for line in said if line.startswith("[node")] == [f"[node-0-0] {line}" for line in "abcd"]


def test_another_word_for_stopping_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ValueError, match="expected suspend, delete or keep"):
        operator(ending={"on_cancel": "drop"})


@pytest.fixture
def preempted(connected: EmbeddedCluster, set_status: SetStatus, add_pod: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the newest job fail because its pod was taken away; returns it."""
    from trainwright.jobs.diagnosis import resubmission

    monkeypatch.setattr(resubmission, "RESUBMISSION", Backoff(0.0, 0.0))
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}

    def make() -> dict[str, Any]:
        job = max(jobs(connected), key=lambda job: job["metadata"]["name"])
        add_pod(job, phase="Failed", conditions=[disruption])
        set_status(job, "Failed")
        return job

    return make


def test_a_preempted_job_is_resumed_and_deferred_again_within_the_budget(connected: EmbeddedCluster, preempted: Any) -> None:
    from datetime import timedelta

    from trainwright.jobs import Preempted

    task = operator(limits={"preemption_budget": 1}, execution_timeout=timedelta(hours=1))
    trigger = deferred(task).trigger
    first = preempted()
    with pytest.raises(airflow_api.TaskDeferred) as raised:
        task.execute_complete(context(), event_of(trigger))
    again = raised.value.trigger
    assert (again.name, again.until) == (f"{first['metadata']['name']}-2", trigger.until)
    assert raised.value.timeout is not None
    assert raised.value.timeout <= timedelta(hours=1, seconds=120)
    preempted()
    with pytest.raises(Preempted, match="its preemption budget of 1 resubmissions is exhausted"):
        task.execute_complete(context(), event_of(again))
    assert len(jobs(connected)) == 2


def test_a_preempted_job_is_resumed_in_the_worker_after_a_broken_trigger(
    connected: EmbeddedCluster, preempted: Any, set_status: SetStatus
) -> None:
    deferred(operator())
    first = preempted()
    waiting = threading.Thread(target=lambda: results.append(operator().resume_execution(*fail("Trigger failure"), context())))
    results: list[dict[str, Any]] = []
    waiting.start()
    eventually(lambda: len(jobs(connected)) == 2)
    set_status(max(jobs(connected), key=lambda job: job["metadata"]["name"]), "Complete")
    waiting.join(30)
    assert [result["trainjob"] for result in results] == [f"{first['metadata']['name']}-2"]


def test_a_task_that_is_ended_while_it_waits_to_resume_leaves_nothing(
    connected: EmbeddedCluster, preempted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainwright.jobs.diagnosis import resubmission

    task = operator()
    trigger = deferred(task).trigger
    preempted()
    monkeypatch.setattr(resubmission, "wait_to_resume", lambda *_: False)
    with pytest.raises(Cancelled, match="was ended while it waited to resume"):
        task.execute_complete(context(), event_of(trigger))
    assert len(jobs(connected)) == 1


def test_training_that_diverges_fails_for_good_and_its_job_is_suspended(
    connected: EmbeddedCluster, set_status: SetStatus
) -> None:
    task = operator()
    trigger = deferred(task).trigger

    async def first() -> dict[str, Any]:
        waiting = asyncio.ensure_future(anext(aiter(trigger.run())))
        step = 0
        while not waiting.done():  # reports go on until one is enough
            step += 1
            await asyncio.to_thread(set_status, the_job(connected), **loss_report(step % 60, "nan" if step > 1 else "1.5"))
            await asyncio.wait([waiting], timeout=0.05)
        return dict((await waiting).payload)

    event = json.loads(json.dumps(asyncio.run(asyncio.wait_for(first(), 30))))
    assert event["outcome"] == "diverged"
    with pytest.raises(errors.NonRetryableError, match="loss is nan since step ") as raised:
        task.execute_complete(context(), event)
    assert raised.value.report.name == "loss"
    assert the_job(connected)["spec"]["suspend"] is True


@pytest.mark.parametrize("is_deleted", [False, True])
def test_training_that_ended_with_a_loss_that_is_not_finite_is_not_green(
    connected: EmbeddedCluster, set_status: SetStatus, is_deleted: bool
) -> None:
    task, lenient = operator(), operator(limits={"fail_on_divergence": "false"})
    trigger = deferred(task).trigger
    set_status(the_job(connected), "Complete", **loss_report(9, "nan"))
    event = event_of(trigger)
    if is_deleted:
        connected.delete(TRAINJOB, event["name"], "default")
    else:
        with pytest.raises(errors.NonRetryableError, match="loss is nan"):
            operator(deferrable=False).execute(context())
        with pytest.raises(errors.NonRetryableError, match="loss is nan"):
            operator().execute(context())
    with pytest.raises(errors.NonRetryableError, match="loss is nan since step 9"):
        task.execute_complete(context(), event)
    assert lenient.execute_complete(context(), event)["metrics"]["loss"] == "nan"
