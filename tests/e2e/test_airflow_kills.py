"""A real Airflow whose workers are killed, whose tasks are cleared and marked while a TrainJob runs: never two, never an orphan."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_server import AirflowServer, running_airflow, worker_of
from waiting import eventually

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.controlplane.gates import FeatureGates
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane
from trainwright.jobs.state.label_values import label_value
from trainwright.jobs.state.pods import pods_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SYNC, DEFERRED = "train_in_worker", "train_deferred"
DAGS = """
from datetime import timedelta
from airflow.sdk import DAG
from trainwright.operators import TrainJobOperator

for name, deferrable in (("train_in_worker", False), ("train_deferred", True)):
    with DAG(name, schedule=None, catchup=False, max_active_runs=16) as dag:
        TrainJobOperator(
            task_id="train", runtime="wait-for-a-file", workspace="pvc://here", deferrable=deferrable,
            min_defer_seconds=5, retries=2, retry_delay=timedelta(seconds=1), conn_id="cluster",
        )
    globals()[name] = dag
"""


def runtime(folder: Path) -> dict[str, Any]:
    """A training program that ends once a file named after its job appears."""
    script = f'while [ ! -e {folder}/"$TRAINJOB_NAME" ] && [ ! -e {folder}/all ]; do sleep 0.1; done'
    job = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
    container = {
        "name": "node",
        "image": "example.com/wait:1",
        "command": ["bash", "-c", script],
        "env": [{"name": "TRAINJOB_NAME", "valueFrom": job}],
        "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
    }
    volume = {"name": "initializer", "persistentVolumeClaim": {"claimName": "workspace"}}
    pod = {"spec": {"restartPolicy": "Never", "volumes": [volume], "containers": [container]}}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": pod},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "wait-for-a-file", "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


class Scene:
    """The cluster and the Airflow, and what a test asks of both."""

    def __init__(self, plane: ControlPlane, airflow: AirflowServer, go: Path):
        self.plane, self.airflow, self.go = plane, airflow, go

    def jobs(self, run: str) -> list[dict[str, Any]]:
        return self.plane.cluster.list(TRAINJOB, label_selector=f"{names.RUN_LABEL}={label_value(run)}").items

    def the_job(self, run: str) -> dict[str, Any]:
        (job,) = self.jobs(run)
        return job

    def begin(self, dag: str, run: str) -> dict[str, Any]:
        """Trigger a run, and wait until its job's program runs and its task waits for it; returns the job."""
        self.airflow.trigger(dag, run)
        eventually(lambda: any(self.runs(job) for job in self.jobs(run)), 60, f"the job of {run}")
        self.next_try(dag, run, 1)
        return self.the_job(run)

    def runs(self, job: dict[str, Any]) -> bool:
        pods = pods_of(self.plane.cluster, job)
        return any((pod.get("status") or {}).get("phase") == "Running" for pod in pods)

    def pid(self, run: str) -> int:
        return int(eventually(lambda: self.airflow.task(SYNC, run)["pid"], 30, "the task's process"))

    def finish(self, dag: str, run: str, *, tries: int) -> None:
        """Let its jobs end well; the task must succeed in that try."""
        for job in self.jobs(run):
            (self.go / job["metadata"]["name"]).touch()
        task = eventually(lambda: self._ended(dag, run), 90, f"the task of {run} to end")
        assert (task["state"], task["try_number"]) == ("success", tries), self.airflow.log(dag, run)

    def _ended(self, dag: str, run: str) -> dict[str, Any] | None:
        task = self.airflow.task(dag, run)
        return task if task["state"] in ("success", "failed") else None

    def next_try(self, dag: str, run: str, number: int) -> None:
        """Wait until that try of the task waits for its job, in a worker or in the triggerer."""
        eventually(lambda: self._waits(dag, run, number), 90, f"try {number} of {run} to wait")

    def _waits(self, dag: str, run: str, number: int) -> bool:
        task = self.airflow.task(dag, run)
        if dag == SYNC:
            return task["state"] == "running" and task["try_number"] == number
        log = self.airflow.log(dag, run, f"attempt={number}.log.trigger.*")
        return task["state"] == "deferred" and task["try_number"] == number and '"Running"' in log


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("airflow")
    dags, go = folder / "dags", folder / "go"
    dags.mkdir()
    go.mkdir()
    (dags / "training.py").write_text(DAGS, "utf-8")
    plane = ControlPlane(Home(folder / "home"), gates=FeatureGates())
    plane.start()
    try:
        plane.cluster.create(runtime(go))
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": "here", "namespace": "default"}
        plane.cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
        kubeconfig = str(plane._home.kubeconfig)
        connection = f'{{"conn_type": "trainwright", "extra": {{"kubeconfig": "{kubeconfig}"}}}}'
        with running_airflow(folder / "airflow", dags, {"AIRFLOW_CONN_CLUSTER": connection}) as airflow:
            eventually(lambda: airflow.knows(SYNC) and airflow.knows(DEFERRED), 60, "the DAGs")
            yield Scene(plane, airflow, go)
            (go / "all").touch()
    finally:
        plane.stop(2)


@pytest.mark.parametrize(
    ("who", "number"),
    [("task", signal.SIGKILL), ("worker", signal.SIGKILL), ("worker", signal.SIGTERM), ("task", signal.SIGTERM)],
)
def test_a_killed_worker_leaves_one_job_running_and_the_retry_adopts_it(scene: Scene, who: str, number: signal.Signals) -> None:
    run = f"{who}-{number.name}".lower()
    job = scene.begin(SYNC, run)
    pid = scene.pid(run)
    worker = worker_of(pid)
    os.kill(worker if who == "worker" else pid, number)
    if (who, number) == ("worker", signal.SIGKILL):
        os.kill(pid, signal.SIGKILL)  # the machine is gone, not only one of its processes
    scene.next_try(SYNC, run, 2)
    assert uid_of(scene.the_job(run)) == uid_of(job)
    assert not scene.the_job(run)["spec"].get("suspend")
    scene.finish(SYNC, run, tries=2)
    assert uid_of(scene.the_job(run)) == uid_of(job)


@pytest.mark.parametrize("dag", [SYNC, DEFERRED])
def test_marking_the_task_as_failed_stops_its_job(scene: Scene, dag: str) -> None:
    run = f"marked-{dag}"
    scene.begin(dag, run)
    scene.airflow.mark(dag, run, "failed")
    eventually(lambda: scene.the_job(run)["spec"].get("suspend"), 60, "the job to be suspended")
    eventually(lambda: not pods_of(scene.plane.cluster, scene.the_job(run)), 30, "its pods to end")
    assert scene.airflow.task(dag, run)["state"] == "failed"


@pytest.mark.parametrize("dag", [SYNC, DEFERRED])
def test_clearing_a_waiting_task_stops_its_job_and_starts_a_new_one(scene: Scene, dag: str) -> None:
    run = f"cleared-{dag}"
    first = scene.begin(dag, run)
    scene.airflow.clear(dag, run)
    jobs = eventually(lambda: found if len(found := scene.jobs(run)) == 2 else None, 90, "a second job")
    stopped = next(job for job in jobs if uid_of(job) == uid_of(first))
    assert stopped["spec"].get("suspend") is True
    scene.next_try(dag, run, 2)
    scene.finish(dag, run, tries=2)
    assert len(scene.jobs(run)) == 2


def test_clearing_before_the_triggerer_knows_of_the_task_does_not_leave_two_jobs(scene: Scene) -> None:
    scene.airflow.trigger(DEFERRED, "early")
    first = eventually(lambda: scene.jobs("early"), 60, "the job")[0]
    eventually(lambda: scene.airflow.task(DEFERRED, "early")["state"] == "deferred", 60, "the task to be deferred")
    scene.airflow.clear(DEFERRED, "early")
    jobs = eventually(lambda: found if len(found := scene.jobs("early")) == 2 else None, 90, "a second job")
    stopped = next(job for job in jobs if uid_of(job) == uid_of(first))
    assert stopped["spec"].get("suspend") is True
    scene.next_try(DEFERRED, "early", 2)
    scene.finish(DEFERRED, "early", tries=2)


def test_clearing_a_task_that_succeeded_starts_a_new_job(scene: Scene) -> None:
    run = "again"
    scene.begin(SYNC, run)
    scene.finish(SYNC, run, tries=1)
    # A run that the scheduler ends just after its task was cleared does not start the task again.
    eventually(lambda: scene.airflow.run_state(SYNC, run) == "success", 60, "the run to end")
    scene.airflow.clear(SYNC, run)
    eventually(lambda: len(scene.jobs(run)) == 2, 90, "a second job")
    scene.finish(SYNC, run, tries=2)


def test_a_deferred_task_holds_no_worker_and_gets_its_result(scene: Scene) -> None:
    scene.begin(DEFERRED, "deferred")
    scene.finish(DEFERRED, "deferred", tries=1)
    entry = scene.airflow.call("GET", f"dags/{DEFERRED}/dagRuns/deferred/taskInstances/train/xcomEntries/return_value")
    assert scene.the_job("deferred")["metadata"]["name"] in str(entry["value"])
