"""Hundreds of deferred tasks that a user ends at once leave no job running, in Airflow's own trigger runner and on a slow cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.jobs.triggerer_job_runner import _USER_ACTION_CANCEL_MSG, TriggerRunner
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.operators import TrainJobTrigger
from trainwright.operators.deferral import job_endings, left_jobs
from trainwright.operators.hook import TrainwrightHook
from trainwright.operators.values.task_state import TaskId

pytestmark = pytest.mark.medium
REQUEST_SECONDS = 0.05


class SlowCluster:
    """The embedded one, as far away as a busy API server, whose requests may fail."""

    def __init__(self, cluster: EmbeddedCluster):
        self._cluster = cluster
        self.errors: list[Exception] = []

    def __getattr__(self, name: str) -> Any:
        perform = getattr(self._cluster, name)

        def request(*arguments: Any, **options: Any) -> Any:
            if name in ("get", "patch"):
                time.sleep(REQUEST_SECONDS)
                if name == "patch" and self.errors:
                    raise self.errors.pop()
            return perform(*arguments, **options)

        return request if callable(perform) else perform


@pytest.fixture
def slow(connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> SlowCluster:
    found = SlowCluster(connected)
    monkeypatch.setattr(TrainwrightHook, "connect", lambda _hook, _settings: found)
    return found


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Airflow says of tasks, by their ids; deferred unless set."""
    found: dict[str, str] = {}
    monkeypatch.setattr(TaskId, "state", lambda task: found.get(task.task_id, "deferred"))
    return found


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []

    def say(form: str, *words: Any, **_more: Any) -> None:
        said.append(form % words if words else form)

    monkeypatch.setattr(TrainJobTrigger, "log", SimpleNamespace(info=say, error=say, warning=say))
    return said


@pytest.fixture
def job_of(connected: EmbeddedCluster) -> Callable[..., dict[str, Any]]:
    def create(task_id: str, **annotations: str) -> dict[str, Any]:
        noted = {names.OWNER_ANNOTATION: f"airflow/d/d/r/{task_id}", **annotations}
        metadata = {"name": task_id, "namespace": "default", "annotations": noted}
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["sleep", "600"]}}
        return connected.create({"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": spec})

    return create


def trigger_of(job: dict[str, Any], **options: Any) -> TrainJobTrigger:
    task = {"dag_id": "d", "task_id": job["metadata"]["name"], "run_id": "r", "map_index": -1}
    metadata = job["metadata"]
    return TrainJobTrigger(
        conn_id=None, namespace="default", name=metadata["name"], uid=metadata["uid"], task=task, log_poll_interval=0, **options
    )


def running(connected: EmbeddedCluster) -> list[str]:
    return [job["metadata"]["name"] for job in connected.list(TRAINJOB).items if not job["spec"].get("suspend")]


class Runner:
    """Airflow's trigger runner with these triggers, and its cancellations once a second until all have ended."""

    def __init__(self, triggers: list[TrainJobTrigger]):
        self.runner, self.triggers = TriggerRunner(), triggers

    async def start(self) -> None:
        for number, trigger in enumerate(self.triggers):
            task = asyncio.create_task(self.runner.run_trigger(number, trigger, None, None))
            self.runner.triggers[number] = {"task": task, "is_watcher": False, "name": str(number), "events": 0}
        while not all(trigger._follower is not None for trigger in self.triggers):
            await asyncio.sleep(0.01)

    async def cancel_until_ended(self, pause: float = 1.0) -> None:
        while self.runner.triggers:
            self.runner.to_cancel.extend(self.runner.triggers)
            await self.runner.cancel_triggers()
            await asyncio.sleep(pause)
            await self.runner.cleanup_finished_triggers()


def test_two_hundred_tasks_that_end_at_once_leave_no_job(
    connected: EmbeddedCluster, slow: SlowCluster, states: dict[str, str], lines: list[str], job_of: Callable[..., Any]
) -> None:
    jobs = [job_of(f"t{number}") for number in range(200)]
    states |= {job["metadata"]["name"]: "failed" for job in jobs}
    keeps = job_of("still-deferred")

    async def play() -> None:
        runner = Runner([trigger_of(job) for job in (*jobs, keeps)])
        await runner.start()
        await runner.cancel_until_ended()

    asyncio.run(asyncio.wait_for(play(), 60))
    eventually(lambda: running(connected) == ["still-deferred"], 10, "all jobs but one to be suspended")
    assert sum("the task was ended by a user" in line and "it is suspended" in line for line in lines) == len(jobs)
    assert sum("still deferred: TrainJob default/still-deferred is not changed" in line for line in lines) == 1


def test_cancellations_that_come_faster_than_airflows_own_change_nothing(
    connected: EmbeddedCluster, slow: SlowCluster, states: dict[str, str], job_of: Callable[..., Any], lines: list[str]
) -> None:
    """Airflow's own work before it calls on_kill may take longer than the second until it cancels again."""
    jobs = [job_of(f"t{number}") for number in range(20)]
    states |= {job["metadata"]["name"]: "failed" for job in jobs}

    async def play() -> None:
        runner = Runner([trigger_of(job) for job in jobs])
        await runner.start()
        await runner.cancel_until_ended(pause=0.001)

    asyncio.run(asyncio.wait_for(play(), 60))
    eventually(lambda: not running(connected), 10, "all jobs to be suspended")


@pytest.mark.parametrize(("message", "suspended"), [((), False), ((_USER_ACTION_CANCEL_MSG,), True)])
def test_a_triggerer_that_shuts_down_asks_nobody(
    connected: EmbeddedCluster,
    slow: SlowCluster,
    states: dict[str, str],
    lines: list[str],
    job_of: Callable[..., Any],
    message: tuple[str, ...],
    suspended: bool,
) -> None:
    job = job_of("t")
    states["t"] = "failed"

    async def play() -> None:
        runner = Runner([trigger_of(job)])
        await runner.start()
        task = runner.runner.triggers[0]["task"]
        task.cancel(*message)
        await asyncio.wait({task})

    asyncio.run(asyncio.wait_for(play(), 30))
    assert running(connected) == ([] if suspended else ["t"])


def test_versions_without_on_kill_stop_the_job_too(
    connected: EmbeddedCluster,
    slow: SlowCluster,
    states: dict[str, str],
    lines: list[str],
    job_of: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Airflow 3.1 and 3.2: a trigger is only cancelled, without a message."""
    from airflow.triggers.base import BaseTrigger

    monkeypatch.delattr(BaseTrigger, "on_kill")
    ended, goes_on = job_of("ended"), job_of("goes-on")
    states["ended"] = "failed"

    async def play() -> None:
        tasks = [asyncio.ensure_future(anext(trigger_of(job).run())) for job in (ended, goes_on)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(asyncio.wait_for(play(), 30))
    assert running(connected) == ["goes-on"]


def test_an_outage_is_waited_for_and_a_refusal_is_said(
    connected: EmbeddedCluster, slow: SlowCluster, states: dict[str, str], lines: list[str], job_of: Callable[..., Any]
) -> None:
    states |= {"outage": "failed", "refused": "failed"}

    async def play(job: dict[str, Any]) -> None:
        await trigger_of(job)._end_with_task()

    outage, refused = job_of("outage"), job_of("refused")
    slow.errors = [ServiceUnavailable("no route")]
    asyncio.run(play(outage))
    assert running(connected) == ["refused"]
    slow.errors = [Forbidden("not you")]
    asyncio.run(play(refused))
    assert lines[-1] == "the task was ended by a user; TrainJob default/refused was not stopped: not you"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_jobs, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(left_jobs, "_searched", set())


@pytest.mark.usefixtures("searches")
def test_the_next_triggerer_stops_what_was_ended_while_none_ran(
    connected: EmbeddedCluster, slow: SlowCluster, states: dict[str, str], lines: list[str], job_of: Callable[..., Any]
) -> None:
    def awaited(task_id: str, on_cancel: str = "suspend") -> dict[str, str]:
        task = f'"dag_id": "d", "task_id": "{task_id}", "run_id": "r", "map_index": -1'
        return {names.AWAITED_BY_ANNOTATION: f'{{{task}, "on_cancel": "{on_cancel}"}}'}

    states |= {"failed": "failed", "skipped": "skipped", "unknown": "absent", "cleared": "", "foreign": "failed"}
    for name in ("failed", "skipped", "unknown", "cleared", "deferred"):
        job_of(name, **awaited(name))
    job_of("noted-nothing")
    job_of("unreadable", **{names.AWAITED_BY_ANNOTATION: "[1"})
    watched = job_of("watched", **awaited("watched"))

    async def play() -> None:
        runner = Runner([trigger_of(watched)])
        await runner.start()
        await asyncio.to_thread(eventually, lambda: "skipped" not in running(connected) and "failed" not in running(connected))
        task = runner.runner.triggers[0]["task"]
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(asyncio.wait_for(play(), 30))
    assert set(running(connected)) == {"unknown", "cleared", "deferred", "noted-nothing", "unreadable", "watched"}


def test_a_job_of_a_slow_api_server_is_stopped_within_bounded_time(
    connected: EmbeddedCluster,
    slow: SlowCluster,
    states: dict[str, str],
    lines: list[str],
    job_of: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_endings, "STOP_SECONDS", 0.2)
    states["t"] = "failed"
    slow.errors = [ServiceUnavailable("no route")] * 50
    asyncio.run(asyncio.wait_for(trigger_of(job_of("t"))._end_with_task(), 10))
    assert lines[-1].endswith("was not stopped: no route")
