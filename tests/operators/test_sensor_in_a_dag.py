"""TrainJobSensor in Airflow itself: deferred from a worker for the output of a task, and started in the triggerer for a plain name."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow_programs import run_dag
from support.cluster_under_test import embedded

pytestmark = pytest.mark.slow
DAG = """
from airflow.sdk import DAG, task

from trainwright.operators import TrainJobOperator, TrainJobSensor

JOB = {"runtime": "torch-distributed", "command": ["true"], "wait_for_completion": False, "namespace": "default"}


@task
def finish(trainjob: str) -> None:
    from trainwright.api.kinds import TRAINJOB
    from trainwright.cluster import connect

    ended = {"type": "Complete", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    connect().patch(TRAINJOB, trainjob, {"status": {"conditions": [ended]}}, "default", subresource="status")


@task
def submit_named() -> str:
    from trainwright.cluster import connect

    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"]}}
    named = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "named", "namespace": "default"}}
    return connect().create({**named, "spec": spec})["metadata"]["name"]


with DAG("waiting", schedule=None) as dag:
    waiting = {"deferrable": True, "deferral": {"min_defer_seconds": 0}, "namespace": "default"}
    train = TrainJobOperator(task_id="train", **JOB)
    train >> finish("{{ ti.xcom_pull('train')['trainjob'] }}") >> TrainJobSensor(task_id="trained", trainjob=train.output, **waiting)
    named = submit_named()
    finish.override(task_id="finish_named")(named) >> TrainJobSensor(task_id="named", trainjob="named", **waiting)
"""


def test_sensor_waits_for_the_job_of_another_task(tmp_path: Path) -> None:
    with embedded(tmp_path / "cluster", node=False) as kubeconfig:
        found = run_dag(tmp_path, DAG, KUBECONFIG=str(kubeconfig))
    states = {name: state for name, (state, _) in found.items()}
    assert set(states.values()) == {"success"}, states
    handle, trained, named = (found[name][1] for name in ("train", "trained", "named"))
    assert {name: trained[name] for name in ("trainjob", "namespace", "folder")} == {
        name: handle[name] for name in ("trainjob", "namespace", "folder")
    }
    assert (named["trainjob"], named["namespace"]) == ("named", "default")
