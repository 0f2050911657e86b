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
from trainwright.cluster import connect
from trainwright.cluster.protocol import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SENSING, WATCHING = "sensing", "watching"
DAGS = """
from airflow.sdk import DAG, Asset, AssetWatcher, task

from trainwright.operators import TrainJobCompletionTrigger, TrainJobSensor

with DAG("sensing", schedule=None):
    TrainJobSensor(task_id="wait", trainjob="named", conn_id="cluster", deferrable=True, min_defer_seconds=0)

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
            eventually(lambda: airflow.knows(SENSING) and airflow.knows(WATCHING), 60, "the DAGs")
            yield connect(kubeconfig), airflow


def create(cluster: Cluster, name: str, **labels: str) -> dict[str, Any]:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"]}}
    metadata = {"name": name, "namespace": "default", "labels": labels}
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
