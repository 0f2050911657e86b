"""Hundreds of deferred tasks that a user ends at once leave no job running, in Airflow's own trigger runner and on a slow cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright import operators
from trainwright.api import names
from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster

job_endings = OnFirstUse("trainwright.operators.deferral.job_endings")
triggerer = OnFirstUse("airflow.jobs.triggerer_job_runner")
triggers_base = OnFirstUse("airflow.triggers.base")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")
hook = OnFirstUse("trainwright.operators.hook")

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


@dataclass
class Scene:
    """The cluster, far away; what Airflow says of tasks, by their ids (deferred unless set); and what triggers have logged."""

    cluster: EmbeddedCluster
    slow: SlowCluster
    states: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def job_of(self, task_id: str, **annotations: str) -> dict[str, Any]:
        noted = {names.OWNER_ANNOTATION: f"airflow/d/d/r/{task_id}", **annotations}
        metadata = {"name": task_id, "namespace": "default", "annotations": noted}
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["sleep", "600"]}}
        job = {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": spec}
        return self.cluster.create(job)

    def ended_jobs(self, count: int) -> list[dict[str, Any]]:
        """Jobs whose tasks have failed."""
        jobs = [self.job_of(f"t{number}") for number in range(count)]
        self.states |= {job["metadata"]["name"]: "failed" for job in jobs}
        return jobs

    def running(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.cluster.list(TRAINJOB).items if not job["spec"].get("suspend")]

    def play(self, jobs: list[dict[str, Any]], act: Callable[[Runner], Awaitable[None]]) -> None:
        """Do something with Airflow's trigger runner, whose triggers wait for these jobs."""

        async def started() -> None:
            runner = Runner([trigger_of(job) for job in jobs])
            await runner.start()
            await act(runner)

        asyncio.run(asyncio.wait_for(started(), 60))

    def end(self, job: dict[str, Any]) -> str:
        """End the task of a job; returns the last line of its log."""
        asyncio.run(asyncio.wait_for(trigger_of(job)._end_with_task(), 10))
        return self.lines[-1]


@pytest.fixture
def scene(connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(connected, SlowCluster(connected))

    def say(form: str, *words: Any, **_more: Any) -> None:
        made.lines.append(form % words if words else form)

    monkeypatch.setattr(hook.TrainwrightHook, "connect", lambda _hook, _settings: made.slow)
    monkeypatch.setattr(airflow_api.TaskId, "state", lambda task: made.states.get(task.task_id, "deferred"))
    monkeypatch.setattr(operators.TrainJobTrigger, "log", SimpleNamespace(info=say, error=say, warning=say))
    return made


def trigger_of(job: dict[str, Any]) -> operators.TrainJobTrigger:
    task = {"dag_id": "d", "task_id": job["metadata"]["name"], "run_id": "r", "map_index": -1}
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    return operators.TrainJobTrigger(conn_id=None, namespace="default", name=name, uid=uid, task=task, log_poll_interval=0)


class Runner:
    """Airflow's trigger runner with these triggers, and its cancellations once a second until all have ended."""

    def __init__(self, triggers: list[operators.TrainJobTrigger]):
        self.runner, self.triggers = triggerer.TriggerRunner(), triggers

    async def start(self) -> None:
        for number, trigger in enumerate(self.triggers):
            task = asyncio.create_task(self.runner.run_trigger(number, trigger, None, None))
            self.runner.triggers[number] = {"task": task, "is_watcher": False, "name": str(number), "events": 0}
        while not all(trigger._follower is not None for trigger in self.triggers):
            await asyncio.sleep(0.01)

    async def cancel_one(self, *message: str) -> None:
        task = self.runner.triggers[0]["task"]
        task.cancel(*message)
        await asyncio.wait({task})

    async def cancel_until_ended(self, pause: float = 1.0) -> None:
        while self.runner.triggers:
            self.runner.to_cancel.extend(self.runner.triggers)
            await self.runner.cancel_triggers()
            await asyncio.sleep(pause)
            await self.runner.cleanup_finished_triggers()


def test_two_hundred_tasks_that_end_at_once_leave_no_job(scene: Scene) -> None:
    jobs, keeps = scene.ended_jobs(200), scene.job_of("still-deferred")
    scene.play([*jobs, keeps], Runner.cancel_until_ended)
    eventually(lambda: scene.running() == ["still-deferred"], 10, "all jobs but one to be suspended")
    assert sum("the task was ended by a user" in line and "it is suspended" in line for line in scene.lines) == len(jobs)
    assert sum("still deferred: TrainJob default/still-deferred is not changed" in line for line in scene.lines) == 1


def test_cancellations_that_come_faster_than_airflows_own_change_nothing(scene: Scene) -> None:
    """Airflow's own work before it calls on_kill may take longer than the second until it cancels again."""
    scene.play(scene.ended_jobs(20), lambda runner: runner.cancel_until_ended(pause=0.001))
    eventually(lambda: not scene.running(), 10, "all jobs to be suspended")


@pytest.mark.parametrize(("by_user", "suspended"), [(False, False), (True, True)], ids=["message0-False", "message1-True"])
def test_a_triggerer_that_shuts_down_asks_nobody(scene: Scene, by_user: bool, suspended: bool) -> None:
    message = (triggerer._USER_ACTION_CANCEL_MSG,) if by_user else ()
    scene.play(scene.ended_jobs(1), lambda runner: runner.cancel_one(*message))
    assert scene.running() == ([] if suspended else ["t0"])


def test_versions_without_on_kill_stop_the_job_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 3.1 and 3.2: a trigger is only cancelled, without a message."""
    monkeypatch.delattr(triggers_base.BaseTrigger, "on_kill")
    triggers = [trigger_of(job) for job in (*scene.ended_jobs(1), scene.job_of("goes-on"))]

    async def cancel() -> None:
        tasks = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
        while not all(trigger._follower is not None for trigger in triggers):
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(asyncio.wait_for(cancel(), 30))
    assert scene.running() == ["goes-on"]


def test_an_outage_is_waited_for_and_a_refusal_is_said(scene: Scene) -> None:
    scene.states |= {"outage": "failed", "refused": "failed"}
    outage, refused = scene.job_of("outage"), scene.job_of("refused")
    scene.slow.errors = [ServiceUnavailable("no route")]
    scene.end(outage)
    assert scene.running() == ["refused"]
    scene.slow.errors = [Forbidden("not you")]
    assert scene.end(refused) == "the task was ended by a user; TrainJob default/refused was not stopped: not you"


def test_an_outage_that_lasts_is_said_within_bounded_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_endings, "STOP_SECONDS", 0.2)
    (job,) = scene.ended_jobs(1)
    scene.slow.errors = [ServiceUnavailable("no route")] * 50
    assert scene.end(job).endswith("was not stopped: no route")


def test_an_error_that_nobody_expects_is_said(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_task: Any) -> str:
        raise RuntimeError("Response read out of order")

    (job,) = scene.ended_jobs(1)
    monkeypatch.setattr(airflow_api.TaskId, "state", fail)
    assert scene.end(job) == "TrainJob default/t0 was not stopped: RuntimeError: Response read out of order"
