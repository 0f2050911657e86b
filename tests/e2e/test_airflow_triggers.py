"""A real triggerer: a sensor that starts in it, and an asset watcher that starts a DAG when a TrainJob has succeeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from servers.airflow_server import AirflowServer, running_airflow
from support.cluster_under_test import embedded
from support.waiting import eventually

from trainwright.api.kinds import TRAINJOB
from trainwright.api.names import OWNER_ANNOTATION
from trainwright.cluster import connect
from trainwright.cluster.protocol import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SENSING, WATCHING, ENDED = "sensing", "watching", "ended"
SENSORS = ("by_name", "in_worker", "kept")
DAGS = """
from airflow.sdk import DAG, Asset, AssetWatcher, task

from trainwright.operators import TrainJobCompletionTrigger, TrainJobSensor

with DAG("sensing", schedule=None):
    TrainJobSensor(task_id="wait", trainjob="named", conn_id="cluster", deferrable=True, deferral={"min_defer_seconds": 0})

with DAG("ended", schedule=None):
    fixed = dict(conn_id="cluster", deferral={"min_defer_seconds": 0})
    TrainJobSensor(task_id="by_name", trainjob="by-name", deferrable=True, **fixed)
    TrainJobSensor(task_id="in_worker", trainjob="in-worker", deferrable=False, **fixed)
    TrainJobSensor(task_id="kept", trainjob="kept", deferrable=True, on_cancel="keep", **fixed)

trigger = TrainJobCompletionTrigger(namespace="default", label_selector="team=nlp", conn_id="cluster")
with DAG("watching", schedule=[Asset("models", watchers=[AssetWatcher(name="nlp", trigger=trigger)])]):

    @task
    def payload(triggering_asset_events=None) -> dict:
        (events,) = triggering_asset_events.values()
        return events[-1].extra["payload"]

    payload()
"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, AirflowServer]]:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    (folder / "dags" / "triggers.py").write_text(DAGS, "utf-8")
    with embedded(folder / "cluster", node=False) as kubeconfig:
        connection = f'{{"conn_type": "trainwright", "extra": {{"kubeconfig": "{kubeconfig}"}}}}'
        with running_airflow(folder / "airflow", folder / "dags", {"AIRFLOW_CONN_CLUSTER": connection}) as airflow:
            eventually(lambda: all(map(airflow.knows, (SENSING, WATCHING, ENDED))), 60, "the DAGs")
            yield connect(kubeconfig), airflow


def create(cluster: Cluster, name: str, **labels: str) -> dict[str, Any]:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"]}}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": {OWNER_ANNOTATION: "a test"}}
    return cluster.create({"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": spec})


def complete(cluster: Cluster, name: str, at: str = "2026-01-01T00:00:00Z") -> None:
    ended = {"type": "Complete", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at}
    cluster.patch(TRAINJOB, name, {"status": {"conditions": [ended]}}, "default", subresource="status")


def test_a_sensor_for_a_plain_name_takes_a_worker_only_for_its_result(scene: tuple[Cluster, AirflowServer]) -> None:
    cluster, airflow = scene
    create(cluster, "named")
    airflow.trigger(SENSING, "r")
    eventually(lambda: airflow.task(SENSING, "r", "wait")["state"] == "deferred", 60, "the sensor to wait")
    assert airflow.task(SENSING, "r", "wait")["pid"] is None, "no worker has run it"
    complete(cluster, "named")
    eventually(lambda: airflow.run_state(SENSING, "r") == "success", 60, "the sensor to end")
    found = airflow.call("GET", f"dags/{SENSING}/dagRuns/r/taskInstances/wait/xcomEntries/return_value?deserialize=true")
    assert found["value"]["trainjob"] == "named"


def test_marking_the_run_as_failed_suspends_the_jobs_of_its_sensors(scene: tuple[Cluster, AirflowServer]) -> None:
    """Unless they are kept; a cleared sensor resumes its job, and leaves it alone while it waits."""
    cluster, airflow = scene
    names = {task: task.replace("_", "-") for task in SENSORS}
    for name in names.values():
        create(cluster, name)

    def is_suspended(task: str) -> bool:
        return bool(cluster.get(TRAINJOB, names[task], "default")["spec"].get("suspend"))

    def wait_for_all() -> None:
        eventually(lambda: all(airflow.task(ENDED, "r", task)["state"] == "deferred" for task in ("by_name", "kept")), 60)
        eventually(lambda: '"Starting"' in airflow.log(ENDED, "r", task="in_worker"), 60, "the sensor in the worker to wait")
        for task in ("by_name", "kept"):
            eventually(lambda task=task: '"Starting"' in airflow.log(ENDED, "r", "*.trigger.*", task), 60, f"{task} to wait")

    airflow.trigger(ENDED, "r")
    wait_for_all()
    airflow.mark_run(ENDED, "r", "failed")
    eventually(lambda: is_suspended("by_name") and is_suspended("in_worker"), 60, "both jobs to be suspended")
    assert not is_suspended("kept")
    airflow.clear(ENDED, "r")
    eventually(lambda: not is_suspended("by_name") and not is_suspended("in_worker"), 60, "both jobs to be resumed")
    for name in names.values():
        complete(cluster, name)
    eventually(lambda: airflow.run_state(ENDED, "r") == "success", 90, "the sensors to end")


def payloads(airflow: AirflowServer) -> list[dict[str, Any]]:
    """What the runs of the watching DAG that have ended were started with, the earliest first."""
    runs = airflow.call("GET", f"dags/{WATCHING}/dagRuns?order_by=run_after")["dag_runs"]
    path = "taskInstances/payload/xcomEntries/return_value?deserialize=true"
    ended = [quote(run["dag_run_id"]) for run in runs if run["state"] == "success"]
    return [airflow.call("GET", f"dags/{WATCHING}/dagRuns/{run}/{path}")["value"] for run in ended]


def test_a_finished_job_starts_the_dag_that_watches_for_it(scene: tuple[Cluster, AirflowServer]) -> None:
    """Also one that has finished while no triggerer ran; each once."""
    cluster, airflow = scene
    create(cluster, "other")
    jobs = [create(cluster, name, team="nlp") for name in ("first", "second")]
    log = airflow.home / "triggerer.log"
    eventually(lambda: "1 watchers currently running" in log.read_text("utf-8", "replace"), 120, "the watcher")
    complete(cluster, "other")
    complete(cluster, "first")
    (value,) = eventually(lambda: payloads(airflow), 90, "a run of the watching DAG")
    assert (value["name"], value["uid"], value["labels"]["team"]) == ("first", jobs[0]["metadata"]["uid"], "nlp")
    airflow.end("triggerer")
    complete(cluster, "second", "2026-01-01T01:00:00Z")
    airflow.start("triggerer")
    eventually(lambda: len(payloads(airflow)) > 1, 90, "a run for the job that nobody watched")
    assert [value["name"] for value in payloads(airflow)] == ["first", "second"]
