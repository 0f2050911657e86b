"""A DAG run that is marked failed at the worst moment leaves no job running, under a real Airflow: the triggerer searches for them.

`TRAINWRIGHT_ROUNDS=5 TRAINWRIGHT_AIRFLOW=3.1 pytest tests/e2e/test_airflow_left_jobs.py` plays all scenes five times there, the
first with four runs each time.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.airflow_with_cluster import Scene, airflow_under_test, running_scene
from support.waiting import eventually

from trainwright.api.objects import name_of

ROUNDS = int(os.environ.get("TRAINWRIGHT_ROUNDS") or 1)
TASKS, SECONDS = 5, 60.0
GOES_ON = ("queued", "running", "restarting")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.parametrize("number", range(ROUNDS))]
WIDE = pytest.mark.wide(part="airflow")
DAGS = f"""
from datetime import timedelta
from airflow.sdk import DAG
from trainwright.operators import TrainJobOperator

FIXED = dict(runtime="wait-for-a-file", conn_id="cluster", deferral={{"log_poll_interval": 0}})
RETRIED = dict(retries=1, retry_delay=timedelta(minutes=20))
with DAG("deferred", schedule=None, catchup=False, max_active_runs=16) as deferred:
    TrainJobOperator.partial(task_id="train", deferrable=True, **FIXED, **RETRIED).expand(
        env=[{{"TRIAL": str(trial)}} for trial in range({TASKS})]
    )
with DAG("in_worker", schedule=None, catchup=False, max_active_runs=16) as in_worker:
    TrainJobOperator(task_id="train", deferrable=False, **FIXED, **RETRIED)
"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder, wheel = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("wheel")
    with (
        airflow_under_test(folder / "backend", wheel) as minor,
        running_scene(folder, DAGS, ("deferred", "in_worker"), minor) as running,
    ):
        yield running


def active(scene: Scene, run: str) -> list[str]:
    ended = {"Complete", "Failed"}
    return [
        name_of(job)
        for job in scene.jobs(run)
        if not job["spec"].get("suspend")
        and not any(c["type"] in ended and c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or [])
    ]


def states(scene: Scene, dag: str, run: str) -> list[str]:
    return [str(task["state"]) for task in scene.airflow.tasks(dag, run)]


def is_over(scene: Scene, dag: str, run: str) -> bool:
    """Whether no task of the run goes on, no process of one may still submit, and no job is active.

    Airflow may leave tasks of a failed run `scheduled` or `deferred` for ever: what starts them writes that over the mark.
    """
    tasks = scene.airflow.tasks(dag, run)
    lives = any(task["pid"] and Path(f"/proc/{task['pid']}").exists() for task in tasks)
    return not lives and not any(task["state"] in GOES_ON for task in tasks) and not active(scene, run)


def left_none(scene: Scene, dag: str, run: str, marked: float, moment: str) -> None:
    """Wait until the run is over, within a minute of the mark; prints how long that took."""
    left = SECONDS - (time.monotonic() - marked)
    eventually(lambda: is_over(scene, dag, run), max(left, 1.0), f"no job of {run} to be active: {active(scene, run)}")
    seconds = round(time.monotonic() - marked, 1)
    said = {"moment": moment, "airflow": scene.airflow.version, "seconds": seconds, "jobs": len(scene.jobs(run))}
    print(f"left-jobs {json.dumps(said)}")


MOMENTS: dict[str, Callable[[Scene, str], Any]] = {
    "the first job is there": lambda scene, run: scene.jobs(run),
    "the first task is deferred": lambda scene, run: "deferred" in states(scene, "deferred", run),
    "some tasks are deferred": lambda scene, run: states(scene, "deferred", run).count("deferred") >= TASKS // 2,
    "all tasks are deferred": lambda scene, run: states(scene, "deferred", run) == ["deferred"] * TASKS,
}


def test_run_marked_failed_in_its_first_seconds_leaves_no_job(scene: Scene, number: int) -> None:
    waits = {f"moment-{number}-{index}": moment for index, moment in enumerate(MOMENTS)}
    marked: dict[str, float] = {}
    for run in waits:
        scene.airflow.trigger("deferred", run)

    def all_marked() -> bool:
        for run in waits.keys() - marked.keys():
            if MOMENTS[waits[run]](scene, run):
                scene.airflow.mark_run("deferred", run, "failed")
                marked[run] = time.monotonic()
        return len(marked) == len(waits)

    eventually(all_marked, 200, "the moments", longest_pause=0.05)
    for run, moment in waits.items():
        left_none(scene, "deferred", run, marked[run], moment)


def deferred_run(scene: Scene, run: str) -> None:
    scene.airflow.trigger("deferred", run)
    eventually(lambda: states(scene, "deferred", run) == ["deferred"] * TASKS, 120, f"the tasks of {run} to be deferred")


@WIDE
def test_run_cleared_and_then_marked_failed_leaves_no_job(scene: Scene, number: int) -> None:
    run = f"cleared-{number}"
    deferred_run(scene, run)
    scene.airflow.clear("deferred", run)
    scene.airflow.mark_run("deferred", run, "failed")
    left_none(scene, "deferred", run, time.monotonic(), "cleared, then marked")


@WIDE
def test_run_marked_failed_after_the_triggerer_was_killed_leaves_no_job(scene: Scene, number: int) -> None:
    run = f"killed-{number}"
    deferred_run(scene, run)
    scene.airflow.end("triggerer", signal.SIGKILL)
    scene.airflow.mark_run("deferred", run, "failed")
    assert active(scene, run)
    scene.airflow.start("triggerer")
    left_none(scene, "deferred", run, time.monotonic(), "the triggerer was killed")


@WIDE
def test_run_marked_failed_while_triggers_do_not_move_leaves_no_job(scene: Scene, number: int) -> None:
    run = f"slow-{number}"
    deferred_run(scene, run)
    triggerer = scene.airflow.parts["triggerer"].pid
    children = Path(f"/proc/{triggerer}/task/{triggerer}/children").read_text("ascii").split()
    for child in children:
        os.kill(int(child), signal.SIGSTOP)
    try:
        scene.airflow.mark_run("deferred", run, "failed")
        left_none(scene, "deferred", run, time.monotonic(), "triggers do not move")
    finally:
        for child in children:
            os.kill(int(child), signal.SIGCONT)


@WIDE
def test_run_marked_failed_between_two_tries_leaves_no_job(scene: Scene, number: int) -> None:
    run = f"retry-{number}"
    scene.begin("in_worker", run)
    os.kill(scene.pid("in_worker", run), signal.SIGKILL)
    eventually(lambda: states(scene, "in_worker", run) == ["up_for_retry"], 90, "the task to be up for retry")
    assert active(scene, run)
    scene.airflow.mark_run("in_worker", run, "failed")
    left_none(scene, "in_worker", run, time.monotonic(), "between two tries")
