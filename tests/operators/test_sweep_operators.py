"""The operators of a sweep: the plan, a trial and its outcome, however it ends, hopeless trials, and the choice of the best."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories import task_context, train_request
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright import operators
from trainwright.api.kinds import TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Submission, TrainJobFailed
from trainwright.jobs.diagnosis.errors import StoppedEarly
from trainwright.jobs.wait.give_up import stop_early
from trainwright.workspace import read_run, run_folder

errors = OnFirstUse("trainwright.operators.errors")
operator_bases = OnFirstUse("airflow.sdk.bases.operator")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")

pytestmark = pytest.mark.medium
SetStatus = Callable[..., Any]
TRIAL = {"index": 2, "settings": {"learning_rate": 0.1}}


def context(task: str = "train", map_index: int = -1, **more: Any) -> dict[str, Any]:
    pushed: dict[str, Any] = {}
    push = {"pushed": pushed, "xcom_push": lambda key, value: pushed.__setitem__(key, value)}
    return task_context(task, map_index=map_index, **push, **more)


def trial_task(**more: Any) -> operators.TrainTrialOperator:
    given = {"task_id": "train", "trial": TRIAL, "dataset_uri": "pvc://d/x", "model_uri": "pvc://m/y", "workspace": "pvc://w"}
    return operators.TrainTrialOperator(**{**given, "logging": {"logs": "none"}, "deferral": {"min_defer_seconds": 0}, **more})


def the_job(cluster: EmbeddedCluster) -> dict[str, Any]:
    (job,) = eventually(lambda: cluster.list(TRAINJOB, "default").items)
    found: dict[str, Any] = job
    return found


def run_beside(task: Any, of: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    """Execute a task in a thread; its result or error comes last."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(task.execute(of))
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def test_a_plan_is_a_list_of_trials_and_records_their_folders(tmp_path: Path) -> None:
    common: dict[str, Any] = {"task_id": "plan", "settings": '{"epochs": 2}', "metric": "loss"}
    planned = operators.PlanTrialsOperator(**common, trials=[{"seed": 1}, {"seed": 2}]).execute(context("plan"))
    assert planned == [{"index": number, "settings": {"epochs": 2, "seed": number + 1}} for number in (0, 1)]
    space = operators.PlanTrialsOperator(
        **common, space='{"seed": [1, 2, 3]}', max_trials="2", seed="1", workspace_path=str(tmp_path)
    )
    assert len(space.execute(context("plan"))) == 2
    recorded = {f"runs/{path.name}" for path in (tmp_path / "runs").iterdir() if read_run(path)}
    assert recorded == {run_folder("d/r", 0), run_folder("d/r", 1)}
    for wrong in ({}, {"trials": "{a"}, {"space": {"seed": {"min": 1, "max": 2}}}):
        with pytest.raises(errors.NonRetryableError):
            operators.PlanTrialsOperator(task_id="plan", **wrong).execute(context("plan"))


def test_a_trial_has_its_settings_and_the_outcome_of_its_training(connected: EmbeddedCluster, set_status: SetStatus) -> None:
    of = context(map_index=2)
    thread, ended = run_beside(trial_task(settings='{"epochs": 3, "learning_rate": 1}'), of)
    job = the_job(connected)
    arguments = " ".join(job["spec"]["trainer"]["args"])
    assert "learning_rate 0.1" in arguments.replace("=", " ")
    assert "epochs 3" in arguments.replace("=", " ")
    set_status(
        job, "Complete", trainerStatus={"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": [{"name": "loss", "value": "0.5"}]}
    )
    thread.join(20)
    assert ended[0]["metrics"] == {"loss": "0.5"}
    assert of["ti"].pushed["outcome"] == {**TRIAL, "trainjob": job["metadata"]["name"], "metrics": {"loss": 0.5}, "error": ""}


def test_a_trial_that_is_stopped_early_is_skipped(connected: EmbeddedCluster) -> None:
    of = context(map_index=2)
    thread, ended = run_beside(trial_task(), of)
    job = the_job(connected)
    assert stop_early(connected, job, "it is too bad")
    thread.join(20)
    assert isinstance(ended[0], airflow_api.AirflowSkipException)
    outcome = of["ti"].pushed["outcome"]
    assert outcome["error"] == f"TrainJob default/{job['metadata']['name']} was stopped early: it is too bad"
    with pytest.raises(airflow_api.AirflowSkipException):
        trial_task().execute(context(map_index=2))
    assert the_job(connected)["spec"]["suspend"] is True, "a retry does not resume it"
    sensor = operators.TrainJobSensor(task_id="wait", trainjob=job["metadata"]["name"], mode="reschedule")
    with pytest.raises(StoppedEarly):
        sensor.poke(context("wait"))


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_trial_whose_trigger_failed_has_an_outcome(connected: EmbeddedCluster, set_status: SetStatus, end: str) -> None:
    with pytest.raises(airflow_api.TaskDeferred):
        trial_task(deferrable=True).execute(context(map_index=2))
    job, of = the_job(connected), context(map_index=2)
    reported = {"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": [{"name": "loss", "value": "0.5"}]}
    set_status(job, end, trainerStatus=reported)
    task, failed = trial_task(deferrable=True), (operator_bases.TRIGGER_FAIL_REPR, {"error": "Trigger failure"})
    if end == "Failed":
        with pytest.raises(TrainJobFailed):
            task.resume_execution(*failed, of)
        assert "FailedReason" in of["ti"].pushed["outcome"]["error"]
    else:
        assert task.resume_execution(*failed, of)["metrics"] == {"loss": "0.5"}
        assert of["ti"].pushed["outcome"] == {**TRIAL, "trainjob": job["metadata"]["name"], "metrics": {"loss": 0.5}, "error": ""}


def test_trial_that_is_not_waited_for_is_refused() -> None:
    with pytest.raises(ValueError, match="wait_for_completion"):
        trial_task(wait_for_completion=False)


def test_a_deferred_trial_is_skipped_too(connected: EmbeddedCluster) -> None:
    task = trial_task(deferrable=True)
    with pytest.raises(airflow_api.TaskDeferred) as deferred:
        task.execute(context(map_index=2))
    trigger, job = deferred.value.trigger, the_job(connected)

    async def first_event() -> dict[str, Any]:
        event = asyncio.create_task(anext(trigger.run()))
        await asyncio.sleep(0)
        await asyncio.to_thread(stop_early, connected, job, "it is too bad")
        payload: dict[str, Any] = (await asyncio.wait_for(event, 30)).payload
        return payload

    event = json.loads(json.dumps(asyncio.run(first_event())))
    assert event["outcome"] == "stopped-early"
    of = context(map_index=2)
    with pytest.raises(airflow_api.AirflowSkipException, match="it is too bad"):
        task.execute_complete(of, event)
    assert "it is too bad" in of["ti"].pushed["outcome"]["error"]


def test_a_trial_of_another_map_index_is_refused(connected: EmbeddedCluster) -> None:
    with pytest.raises(errors.NonRetryableError, match="map index 0 got trial 2"):
        trial_task().execute(context(map_index=0))
    assert connected.list(TRAINJOB, "default").items == []


OUTCOMES = [
    {"index": 1, "settings": {"seed": 2}, "trainjob": "job-1", "metrics": {"loss": 1.0}},
    {"index": 0, "settings": {"seed": 1}, "trainjob": "job-0", "metrics": {"loss": 2.0}},
    {"index": 2, "settings": {"seed": 3}, "trainjob": "", "error": "out of memory"},
]


def test_the_best_is_picked_and_all_are_listed(tmp_path: Path) -> None:
    plan = [{"index": index, "settings": {"seed": index + 1}} for index in range(4)]
    operators.PlanTrialsOperator(task_id="plan", trials=[one["settings"] for one in plan], workspace_path=str(tmp_path)).execute(
        context("plan")
    )
    pick = operators.PickTrialOperator(
        task_id="pick", outcomes=OUTCOMES, metric="loss", trials=plan, workspace_path=str(tmp_path)
    )
    best = pick.execute(context("pick"))
    summary = best.pop("summary")
    assert best == {"index": 1, "trainjob": "job-1", "value": 1.0, "settings": {"seed": 2}}
    assert "out of memory" in summary
    assert "its task has no outcome" in summary
    assert (tmp_path / run_folder("d/r", 1)).is_dir()
    other = operators.PickTrialOperator(task_id="pick", outcomes=json.dumps(OUTCOMES), metric="loss", greater_is_better="true")
    assert other.execute(context("pick"))["index"] == 0
    one = operators.PickTrialOperator(task_id="pick", outcomes=OUTCOMES[0], metric="loss")  # type: ignore[arg-type]
    assert one.execute(context("pick"))["index"] == 1, "the XCom of a task that was mapped over one trial"
    with pytest.raises(Exception, match="none reported 'other'"):
        operators.PickTrialOperator(task_id="pick", outcomes=OUTCOMES, metric="other").execute(context("pick"))


def test_hopeless_trials_are_stopped_until_airflow_has_ended_all(connected: EmbeddedCluster, set_status: SetStatus) -> None:
    from trainwright.jobs import Identity, submit_or_adopt

    request = train_request(runtime="torch-distributed", command=["true"])
    jobs = [
        submit_or_adopt(Submission(connected, request, Identity("airflow/d", "d/r", "train", index), "default")).trainjob
        for index in range(3)
    ]
    for job, loss in zip(jobs, (1, 2, 9), strict=True):
        metrics = [{"name": "loss", "value": str(loss)}]
        set_status(job, trainerStatus={"lastUpdatedTime": "2026-01-01T00:00:00Z", "progressPercentage": 50, "metrics": metrics})
    states = iter([{}, {"r": {"train": None}}, {"r": {"train_0": "success", "train_1": "failed", "train_2": "skipped"}}])
    task = operators.StopHopelessTrialsOperator(
        task_id="stop", trials_task_id="train", metric="loss", min_trials="2", start_step=1, poll_interval=0.01
    )
    stopped = task.execute(context("stop", get_task_states=lambda **_: next(states)))
    assert [(trial["index"], trial["trainjob"]) for trial in stopped] == [(2, jobs[2]["metadata"]["name"])]
    with pytest.raises(airflow_api.AirflowSkipException):
        operators.StopHopelessTrialsOperator(task_id="stop", trials_task_id="train", enabled="false").execute(context("stop"))
    with pytest.raises(errors.NonRetryableError, match="start_step"):
        operators.StopHopelessTrialsOperator(task_id="stop", trials_task_id="train", start_step=0).execute(context("stop"))
