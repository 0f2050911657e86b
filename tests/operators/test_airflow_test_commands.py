"""A deferrable task in `airflow tasks test` and `dag.test()`, where its trigger runs in the process of the task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_programs import run_dag
from support.cluster_under_test import embedded

from trainwright.api.conditions import is_true
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster import connect
from trainwright.quickstart.airflow_dag import configure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DAG = """
from airflow.sdk import DAG
from trainwright.operators import TrainJobOperator

with DAG("guarded", schedule=None, catchup=False) as dag:
    TrainJobOperator(
        task_id="slow", runtime="torch-distributed", command=["sleep", "2"], conn_id="stored", deferrable=True,
        deferral={"min_defer_seconds": 1},
        num_nodes=1, num_proc_per_node=1, resources_per_node={"cpu": "1m", "memory": "5Mi"},
    )
"""


def airflow(folder: Path, *words: str) -> str:
    env = {**os.environ, **configure(folder / "airflow"), "AIRFLOW__CORE__DAGS_FOLDER": str(folder), "KUBECONFIG": os.devnull}
    command = [sys.executable, "-P", "-m", "airflow", *words]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded(tmp_path_factory.mktemp("cluster"), node=True) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def folder(tmp_path: Path, cluster: Path) -> Path:
    """The DAGs folder of an Airflow whose database has the connection."""
    (tmp_path / "guarded.py").write_text(DAG, "utf-8")
    airflow(tmp_path, "db", "migrate")
    extra = json.dumps({"kubeconfig": str(cluster)})
    airflow(tmp_path, "connections", "add", "stored", "--conn-type", "trainwright", "--conn-extra", extra)
    return tmp_path


def test_tasks_test_waits_with_a_connection_of_the_database(folder: Path, cluster: Path) -> None:
    known = {job["metadata"]["uid"] for job in connect(cluster).list(TRAINJOB, "default").items}
    log = airflow(folder, "tasks", "test", "guarded", "slow", "2026-01-01")
    (job,) = (job for job in connect(cluster).list(TRAINJOB, "default").items if job["metadata"]["uid"] not in known)
    assert "Trigger completed" in log, log[-4000:]
    assert "in the worker" not in log, "the trigger itself has waited"
    assert is_true(job, "Complete")


def test_dag_test_waits_with_a_connection_of_the_database(folder: Path) -> None:
    found = run_dag(folder, DAG, KUBECONFIG=os.devnull)
    assert [found[name][0] for name in ("slow", "")] == ["success", "success"]
    assert found["slow"][1]["trainjob"]
