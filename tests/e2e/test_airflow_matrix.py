"""What may happen to a task and its TrainJob under a real Airflow: the right end, exactly one job an attempt, none left running.

`make airflow-matrix AIRFLOW=3.1` plays every scene twenty times on that minor, or ROUNDS=n times; EXECUTOR=celery on the newest with
CeleryExecutor.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from servers.airflow_server import worker_of
from support.airflow_with_cluster import Scene, airflow_under_test, running_scene
from support.waiting import eventually

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of, uid_of
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.waiters import waiter_lease_of

ROUNDS = int(os.environ.get("TRAINWRIGHT_ROUNDS") or 1)
MAPPED = 50 if ROUNDS > 1 else 8
TIMEOUT_SECONDS, QUEUE_SECONDS, LEASE_SECONDS = 15, 5, 8
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.parametrize("number", range(ROUNDS))]
WIDE = pytest.mark.wide(part="airflow")
SYNC, DEFERRED = "train_in_worker", "train_deferred"
DAGS = f"""
from datetime import timedelta
from airflow.sdk import DAG
from trainwright.operators import TrainJobOperator

FIXED = dict(runtime="wait-for-a-file", workspace="pvc://here", conn_id="cluster", deferral={{"log_poll_interval": 2}})
WAITS = {{"min_defer_seconds": 20, "log_poll_interval": 2}}
KINDS = dict(
    train=dict(retries=2, retry_delay=timedelta(seconds=1)),
    once=dict(retries=0),
    leased=dict(retries=0, ending={{"waiter_lease_seconds": {LEASE_SECONDS}}}),
    flaky=dict(retries=0, conn_id="flaky"),
    hurried=dict(retries=0, execution_timeout=timedelta(seconds={TIMEOUT_SECONDS})),
    queued=dict(retries=0, placement={{"queue_name": "nobody"}}, limits={{"queue_timeout_seconds": {QUEUE_SECONDS}}}),
    nowhere=dict(retries=2, retry_delay=timedelta(seconds=1), runtime="no-such-runtime"),
)
for kind, options in KINDS.items():
    for where, deferrable in (("in_worker", False), ("deferred", True)):
        with DAG(f"{{kind}}_{{where}}", schedule=None, catchup=False, max_active_runs=16) as dag:
            TrainJobOperator(task_id="train", deferrable=deferrable, **{{**FIXED, **options}})
        globals()[dag.dag_id] = dag
with DAG("mapped", schedule=None, catchup=False) as mapped:
    unshared = {{name: value for name, value in FIXED.items() if name != "workspace"}}
    # Many tasks end at once: the scheduler needs its time to note that they were deferred.
    TrainJobOperator.partial(task_id="train", deferrable=True, **{{**unshared, "deferral": WAITS}}).expand(
        env=[{{"TRIAL": str(trial)}} for trial in range({MAPPED})]
    )
"""


def both(kind: str, name: str, number: int) -> list[tuple[str, str]]:
    """The DAG and the run of a scene that is played in the worker and deferred at the same time."""
    return [(f"{kind}_{where}", f"{name}-{where}-{number}") for where in ("in_worker", "deferred")]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    kinds = ("train", "once", "leased", "flaky", "hurried", "queued", "nowhere")
    known = tuple(f"{kind}_{where}" for kind in kinds for where in ("in_worker", "deferred"))
    folder, wheel = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("wheel")
    with (
        airflow_under_test(folder / "backend", wheel) as minor,
        running_scene(folder, DAGS, (*known, "mapped"), minor) as running,
    ):
        yield running


def test_a_training_that_succeeds(scene: Scene, number: int) -> None:
    scene.begin_all(both("train", "succeeds", number))
    for _, run in both("train", "succeeds", number):
        scene.let_end(run)
    for dag, run in both("train", "succeeds", number):
        scene.finish(dag, run, tries=1)
        scene.stopped(run)
        entry = scene.airflow.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances/train/xcomEntries/return_value")
        assert name_of(scene.the_job(run)) in str(entry["value"])


@WIDE
def test_a_training_that_fails_is_reported(scene: Scene, number: int) -> None:
    scene.begin_all(both("once", "fails", number))
    for _, run in both("once", "fails", number):
        scene.let_end(run, well=False)
    for dag, run in both("once", "fails", number):
        assert scene.ended(dag, run)["state"] == "failed", run
        scene.stopped(run)
        log = scene.airflow.log(dag, run)
        assert "exited 3" in log
        assert "it was told to fail" in log


@WIDE
def test_a_job_that_somebody_deletes(scene: Scene, number: int) -> None:
    for job in scene.begin_all(both("once", "deleted", number)):
        scene.plane.cluster.delete(TRAINJOB, name_of(job), "default")
    for dag, run in both("once", "deleted", number):
        assert scene.ended(dag, run)["state"] == "failed", run
        scene.stopped(run, jobs=0)
        assert "TrainJobDeleted" in scene.airflow.log(dag, run)


@WIDE
def test_a_runtime_that_does_not_exist_fails_without_retries(scene: Scene, number: int) -> None:
    for dag, run in both("nowhere", "nowhere", number):
        scene.airflow.trigger(dag, run)
    for dag, run in both("nowhere", "nowhere", number):
        task = scene.ended(dag, run)
        assert (task["state"], task["try_number"]) == ("failed", 1), run
        assert "no-such-runtime" in scene.airflow.log(dag, run)
        assert scene.jobs(run) == []


def test_a_killed_worker_leaves_one_job_running_and_the_retry_adopts_it(scene: Scene, number: int) -> None:
    """Kills the task's process and its supervisor in all ways at the same time, in one run each."""
    ways = [("task", signal.SIGKILL), ("task", signal.SIGTERM), ("worker", signal.SIGKILL)]
    if scene.airflow.has_workers_that_heed_signals:
        ways.append(("worker", signal.SIGTERM))
    runs = [f"{who}-{how.name}-{number}".lower() for who, how in ways]
    jobs = scene.begin_all([(SYNC, run) for run in runs])
    for (who, how), run in zip(ways, runs, strict=True):
        pid = scene.pid(SYNC, run)
        worker = worker_of(pid)
        os.kill(worker if who == "worker" else pid, how)
        if (who, how) == ("worker", signal.SIGKILL):
            os.kill(pid, signal.SIGKILL)  # the machine is gone, not only one of its processes
    for run, job in zip(runs, jobs, strict=True):
        scene.next_try(SYNC, run, 2)
        assert uid_of(scene.the_job(run)) == uid_of(job), run
        assert not scene.the_job(run)["spec"].get("suspend"), run
    for run, job in zip(runs, jobs, strict=True):
        scene.finish(SYNC, run, tries=2)
        assert uid_of(scene.the_job(run)) == uid_of(job), run


@WIDE
@pytest.mark.parametrize("kills_workers", [False, True] if ROUNDS > 1 else [True])
def test_a_killed_scheduler_leaves_one_job_that_the_next_ones_worker_adopts(
    scene: Scene, kills_workers: bool, number: int
) -> None:
    """The tasks' own processes live on, with or without their worker, beside those that the next scheduler starts: no try is lost."""
    runs = [
        (dag, f"scheduler-{'and-workers' if kills_workers else 'alone'}-{number}-{left}")
        for dag, left in ((SYNC, "retry"), ("once_in_worker", "last"))
    ]
    jobs = scene.begin_all(runs)
    workers = [worker_of(scene.pid(dag, run)) for dag, run in runs]
    scene.airflow.kill_alone("scheduler")
    for worker in workers if kills_workers else ():
        os.kill(worker, signal.SIGKILL)
    scene.airflow.start("scheduler")
    try:
        for (dag, run), job in zip(runs, jobs, strict=True):
            if kills_workers or not scene.airflow.adopts_tasks:
                eventually(lambda dag=dag, run=run: scene.is_followed_anew(dag, run), 120, f"another worker to follow {run}")
            assert uid_of(scene.the_job(run)) == uid_of(job), run
            assert not scene.the_job(run)["spec"].get("suspend"), run
            scene.let_end(run)
            assert scene.ended(dag, run)["state"] == "success", scene.airflow.log(dag, run)
            assert uid_of(scene.the_job(run)) == uid_of(job), run
    finally:
        for _, run in runs:
            scene.let_end(run)


@WIDE
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_triggerer_that_ends_leaves_the_job_to_the_next(scene: Scene, how: signal.Signals, number: int) -> None:
    run = f"triggerer-{how.name}-{number}".lower()
    job = scene.begin(DEFERRED, run)
    scene.airflow.end("triggerer", how)
    try:
        assert not scene.the_job(run)["spec"].get("suspend")
    finally:
        scene.airflow.start("triggerer")
    scene.finish(DEFERRED, run, tries=1)
    assert uid_of(scene.the_job(run)) == uid_of(job)
    scene.stopped(run)


def test_another_triggerer_takes_over(scene: Scene, number: int) -> None:
    run = f"reassigned-{number}"
    scene.begin(DEFERRED, run)
    scene.airflow.start("triggerer-2")
    scene.airflow.end("triggerer", signal.SIGKILL)
    try:
        scene.finish(DEFERRED, run, tries=1)
        scene.stopped(run)
    finally:
        scene.airflow.start("triggerer")
        scene.airflow.end("triggerer-2")


@WIDE
def test_marking_the_task_as_failed_stops_its_job(scene: Scene, number: int) -> None:
    scene.begin_all(both("train", "marked", number))
    for dag, run in both("train", "marked", number):
        scene.airflow.mark(dag, run, "failed")
    for dag, run in both("train", "marked", number):
        eventually(lambda run=run: scene.the_job(run)["spec"].get("suspend"), 60, f"the job of {run} to be suspended")
        scene.stopped(run)
        assert scene.airflow.task(dag, run)["state"] == "failed", run


@WIDE
def test_marking_the_run_as_failed_stops_its_job(scene: Scene, number: int) -> None:
    scene.begin_all(both("train", "run-marked", number))
    for dag, run in both("train", "run-marked", number):
        scene.airflow.mark_run(dag, run, "failed")
    for dag, run in both("train", "run-marked", number):
        eventually(lambda run=run: scene.the_job(run)["spec"].get("suspend"), 60, f"the job of {run} to be suspended")
        scene.stopped(run)
        assert scene.airflow.task(dag, run)["state"] in ("failed", "skipped"), run


@WIDE
def test_a_task_that_is_marked_while_no_triggerer_runs_loses_its_job_with_the_lease(scene: Scene, number: int) -> None:
    """Nothing tells the job. The controller finds the lease expired, as CleanUpOperator(abandoned=True) does on other clusters."""
    dag, run = "leased_deferred", f"unseen-{number}"
    job = scene.begin(dag, run)
    eventually(lambda: waiter_lease_of(scene.the_job(run)), 30, "the triggerer's lease")
    scene.airflow.end("triggerer", signal.SIGKILL)
    try:
        scene.airflow.mark(dag, run, "failed")
        assert scene.runs(job)
        eventually(lambda: scene.the_job(run)["spec"].get("suspend"), 90, "the job to be suspended")
        scene.stopped(run)
    finally:
        scene.airflow.start("triggerer")


def test_clearing_a_waiting_task_stops_its_job_and_starts_a_new_one(scene: Scene, number: int) -> None:
    first_jobs = scene.begin_all(both("train", "cleared", number))
    for dag, run in both("train", "cleared", number):
        scene.airflow.clear(dag, run)
    for (dag, run), first in zip(both("train", "cleared", number), first_jobs, strict=True):
        jobs = eventually(lambda run=run: found if len(found := scene.jobs(run)) == 2 else None, 90, f"a second job of {run}")
        stopped = next(job for job in jobs if uid_of(job) == uid_of(first))
        assert stopped["spec"].get("suspend") is True
        scene.next_try(dag, run, 2)
        scene.finish(dag, run, tries=2)
        scene.stopped(run, jobs=2)


@WIDE
def test_clearing_before_the_triggerer_knows_of_the_task_does_not_leave_two_jobs(scene: Scene, number: int) -> None:
    run = f"early-{number}"
    scene.airflow.trigger(DEFERRED, run)
    first = eventually(lambda: scene.jobs(run), 60, "the job")[0]
    eventually(lambda: scene.airflow.task(DEFERRED, run)["state"] == "deferred", 60, "the task to be deferred")
    scene.airflow.clear(DEFERRED, run)
    jobs = eventually(lambda: found if len(found := scene.jobs(run)) == 2 else None, 90, "a second job")
    stopped = next(job for job in jobs if uid_of(job) == uid_of(first))
    assert stopped["spec"].get("suspend") is True
    scene.next_try(DEFERRED, run, 2)
    scene.finish(DEFERRED, run, tries=2)


@WIDE
def test_clearing_a_task_that_succeeded_starts_a_new_job(scene: Scene, number: int) -> None:
    run = f"again-{number}"
    scene.begin(SYNC, run)
    scene.finish(SYNC, run, tries=1)
    # A run that the scheduler ends just after its task was cleared does not start the task again.
    eventually(lambda: scene.airflow.run_state(SYNC, run) == "success", 60, "the run to end")
    scene.airflow.clear(SYNC, run)
    eventually(lambda: len(scene.jobs(run)) == 2, 90, "a second job")
    scene.finish(SYNC, run, tries=2)
    folders = {folder_of_job(job) for job in scene.jobs(run)}
    entry = scene.airflow.call("GET", f"dags/{SYNC}/dagRuns/{run}/taskInstances/train/xcomEntries/return_value")
    assert len(folders) == 2, "the second training must not find the files of the first"
    assert max(folders) in str(entry["value"])


@WIDE
def test_a_run_that_is_deleted_and_triggered_again_under_its_id_trains_again(scene: Scene, number: int) -> None:
    run = f"triggered-again-{number}"
    scene.begin(SYNC, run)
    scene.finish(SYNC, run, tries=1)
    eventually(lambda: scene.airflow.run_state(SYNC, run) == "success", 60, "the run to end")
    scene.airflow.call("DELETE", f"dags/{SYNC}/dagRuns/{run}")
    scene.airflow.trigger(SYNC, run)
    eventually(lambda: len(scene.jobs(run)) == 2, 90, "a second job")
    scene.let_end(run)
    task = scene.ended(SYNC, run)
    # Airflow may take the end of the deleted run's process for that of this run's, and try its task again: the job is adopted.
    assert task["state"] == "success", scene.airflow.log(SYNC, run)
    assert len(scene.jobs(run)) == 2


@WIDE
@pytest.mark.parametrize("ending", ["ends", "SIGTERM"] if ROUNDS > 1 else ["SIGTERM"])
def test_a_person_who_tests_a_task_beside_a_triggerer(scene: Scene, ending: str, number: int, tmp_path: Path) -> None:
    """`airflow tasks test` waits for a deferred task by itself, while its task goes through other states than `deferred`."""
    known = {uid_of(job) for job in scene.all_jobs()}
    testing = scene.airflow.command("tasks", "test", DEFERRED, "train", output=tmp_path / "test.log")
    try:
        (job,) = eventually(lambda: [job for job in scene.all_jobs() if uid_of(job) not in known], 90, "the job")
        eventually(lambda: "running trigger in line" in (tmp_path / "test.log").read_text("utf-8"), 90, "the task to be deferred")
        eventually(lambda: scene.runs(job), 60, "the job to run")
        assert not scene.plane.cluster.get(TRAINJOB, name_of(job), "default")["spec"].get("suspend")
        if ending == "SIGTERM":
            testing.send_signal(signal.SIGTERM)
            assert testing.wait(30) != 0
        else:
            (scene.go / name_of(job)).touch()
            assert testing.wait(90) == 0, (tmp_path / "test.log").read_text("utf-8")
        current = scene.plane.cluster.get(TRAINJOB, name_of(job), "default")
        assert bool(current["spec"].get("suspend")) is (ending == "SIGTERM")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(testing.pid, signal.SIGKILL)
        (scene.go / name_of(job)).touch()


@WIDE
def test_limits_of_time_stop_the_job(scene: Scene, number: int) -> None:
    """The execution timeout of a task that runs, and the time in a queue of one that does not."""
    hurried, queued = both("hurried", "hurried", number), both("queued", "queued", number)
    for dag, run in (*hurried, *queued):
        scene.airflow.trigger(dag, run)
    for _, run in hurried:
        scene.wait_for_program(run)
    for dag, run in (*hurried, *queued):
        assert scene.ended(dag, run)["state"] == "failed", run
    for _, run in hurried:
        scene.stopped(run)
    for dag, run in queued:
        assert "QueueTimeout" in scene.airflow.log(dag, run)
        scene.stopped(run, jobs=0)  # a queue would admit a suspended one


@WIDE
def test_an_api_server_that_is_gone_for_a_while(scene: Scene, number: int) -> None:
    """Its watch ends, and the next one is of a version that the server may have forgotten."""
    scene.begin_all(both("flaky", "flaky", number))
    scene.outage.begin()
    for _, run in both("flaky", "flaky", number):
        scene.let_end(run)
    for dag, run in both("flaky", "flaky", number):
        assert scene.ended(dag, run, 120)["state"] == "success", scene.airflow.log(dag, run)
        scene.stopped(run)
    assert scene.outage.faults
    eventually(lambda: scene.outage.is_over, 40, "the outage to end before the next scene")


@WIDE
def test_a_watch_that_has_expired_is_followed_by_a_new_list(scene: Scene, number: int) -> None:
    scene.begin_all(both("flaky", "expired", number))
    scene.outage.expire()
    eventually(lambda: scene.outage.has_expired, 60, "both watches to be refused")
    for _, run in both("flaky", "expired", number):
        scene.let_end(run)
    for dag, run in both("flaky", "expired", number):
        assert scene.ended(dag, run)["state"] == "success", scene.airflow.log(dag, run)
        scene.stopped(run)


@WIDE
def test_many_mapped_tasks_have_a_job_each(scene: Scene, number: int) -> None:
    run = f"mapped-{number}"
    scene.airflow.trigger("mapped", run)
    eventually(lambda: len(scene.jobs(run)) == MAPPED, 300, "all jobs")

    def all_ended() -> bool:
        scene.let_end(run)
        states = [task["state"] for task in scene.airflow.tasks("mapped", run)]
        log = scene.airflow.log("mapped", run, "map_index=*/attempt=*.log*")
        assert not {"failed", "upstream_failed", "up_for_retry"} & set(states), f"{states}\n{log}"
        return states == ["success"] * MAPPED

    eventually(all_ended, 300, "all tasks to succeed")
    scene.stopped(run, jobs=MAPPED)
