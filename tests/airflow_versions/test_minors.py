"""The provider under each minor of Airflow: every DAG loads, and a DAG that trains runs, in the worker and deferred.

The newest one has all other tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.airflow_minors import OLDER, older_minor
from support.airflow_with_cluster import runtime_of
from support.built_wheel import unpacked_wheel
from support.client_environments import Unavailable
from support.example_dags import DAG_IDS
from support.running_plane import running_plane

from trainwright.api.conditions import is_finished
from trainwright.api.kinds import TRAINJOB
from trainwright.quickstart.airflow_dag import configure

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="airflow"), pytest.mark.timeout(600)]
PROGRAM_SECONDS = 240
DAG = """
from airflow.sdk import DAG
from trainwright.operators import CleanUpOperator, TrainJobOperator

with DAG("training", schedule=None) as dag:
    fixed = dict(runtime="wait-for-a-file", deferral={"min_defer_seconds": 1, "log_poll_interval": 0})
    train = TrainJobOperator(task_id="in-worker", **fixed)
    deferred = TrainJobOperator(task_id="deferred", deferrable=True, conn_id="stored", **fixed)
    train >> deferred >> CleanUpOperator(task_id="clean-up")
"""
LOAD = """
import importlib, json, pkgutil
import trainwright.example_dags, trainwright.operators
from airflow.sdk import DAG
for name in trainwright.operators.__all__:
    getattr(trainwright.operators, name)
found = []
for module in pkgutil.iter_modules(trainwright.example_dags.__path__):
    loaded = importlib.import_module(f"trainwright.example_dags.{module.name}")
    found += [value.dag_id for value in vars(loaded).values() if isinstance(value, DAG)]
print("FOUND", json.dumps(sorted(found)))
"""
RUN = """
import json, os, sys
from datetime import datetime, timezone
from airflow.utils import db
db.initdb()
from airflow.models import Connection
from airflow.utils.session import create_session
with create_session() as session:
    extra = json.dumps({"kubeconfig": os.environ["KUBECONFIG"]})
    session.add(Connection(conn_id="stored", conn_type="trainwright", extra=extra))
sys.path.insert(0, sys.argv[1])
import training
run = training.dag.test(logical_date=datetime.now(timezone.utc))
with create_session() as session:
    found = {ti.task_id: str(ti.state) for ti in run.get_task_instances(session=session)}
print("FOUND", json.dumps({**found, "": str(getattr(run.state, "value", run.state))}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=OLDER)
def python(request: pytest.FixtureRequest, installed: Path) -> Path:
    try:
        return older_minor(request.param, installed).python
    except Unavailable as error:
        pytest.skip(str(error))


def printed(python: Path, installed: Path, folder: Path, program: str, *arguments: str, kubeconfig: Path | None = None) -> Any:
    passed_on = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
    env = {
        **passed_on,
        **configure(folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "PYTHONPATH": str(installed),
        "KUBECONFIG": str(kubeconfig or folder / "none"),
    }
    command = [str(python), "-P", "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return json.loads(found[0].removeprefix("FOUND "))


def test_every_dag_and_operator_loads(python: Path, installed: Path, tmp_path: Path) -> None:
    found = printed(python, installed, tmp_path, LOAD)
    assert found == sorted(DAG_IDS.values())


def test_a_dag_trains_in_the_worker_and_deferred(python: Path, installed: Path, tmp_path: Path) -> None:
    with running_plane(tmp_path) as plane:
        (tmp_path / "go").mkdir()
        (tmp_path / "go/all").touch()
        runtime = runtime_of(tmp_path / "go")
        pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        del pod["volumes"], pod["containers"][0]["volumeMounts"]
        plane.cluster.create(runtime)
        (tmp_path / "training.py").write_text(DAG, "utf-8")
        found = printed(python, installed, tmp_path, RUN, str(tmp_path), kubeconfig=plane._home.kubeconfig)
        assert found == {"in-worker": "success", "deferred": "success", "clean-up": "success", "": "success"}
        jobs = plane.cluster.list(TRAINJOB, "default").items
        assert [is_finished(job) for job in jobs] == [True, True]
