"""The examples of the README as they stand there: a function, a script for torchrun, a folder and a manifest, each through
Kubeflow Pipelines and through Airflow, on an embedded cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import embedded

from trainwright.quickstart.airflow_dag import configure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
EXAMPLES = {
    match[1]: match[0]
    for match in re.finditer(r"# (\w+: \w+)\n(?:.*?)(?=```)", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
}
KFP = """
import json, sys
from kfp import local
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[1], raise_on_error=True)
exec(compile(open(sys.argv[2]).read(), sys.argv[2], "exec"), globals())
globals()[sys.argv[3]]()
"""
AIRFLOW = """
import json, sys
from datetime import UTC, datetime
from airflow.utils import db
db.initdb()
sys.path.insert(0, sys.argv[1])
import example
dag = example.dag
run = dag.test(logical_date=datetime.now(UTC))
from airflow.utils.session import create_session
with create_session() as session:
    tasks = run.get_task_instances(session=session)
    print("XCOM", json.dumps(tasks[0].xcom_pull(task_ids=tasks[0].task_id, session=session)))
sys.exit(str(run.state) not in ("success", "DagRunState.SUCCESS"))
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded(tmp_path_factory.mktemp("cluster"), node=True) as path:
        yield path


@pytest.fixture(scope="module")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


def test_there_is_an_example_of_each_kind_for_each_orchestrator() -> None:
    kinds = ("function", "ddp", "folder", "manifest")
    assert set(EXAMPLES) == {f"{orchestrator}: {kind}" for orchestrator in ("kfp", "airflow") for kind in kinds}
    for name, text in EXAMPLES.items():
        assert len(text.strip().splitlines()) <= 14, name


def run(arguments: list[str], env: dict[str, str]) -> str:
    command = [sys.executable, "-P", "-c", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def with_kfp(kind: str, kubeconfig: Path, folder: Path) -> Any:
    """What the pipeline's only step returned as `results`."""
    (folder / "example.py").write_text(EXAMPLES[f"kfp: {kind}"], "utf-8")
    run([KFP, str(folder / "root"), str(folder / "example.py"), kind], {"KUBECONFIG": str(kubeconfig)})
    (output,) = (folder / "root").rglob("executor_output.json")
    values = json.loads(output.read_bytes())["parameterValues"]
    assert values["trainjob"]
    return values["results"]


def with_airflow(kind: str, kubeconfig: Path, folder: Path, home: Path) -> Any:
    """The XCom of the DAG's only task."""
    (folder / "example.py").write_text(EXAMPLES[f"airflow: {kind}"], "utf-8")
    env = {"KUBECONFIG": str(kubeconfig), **configure(home), "AIRFLOW__CORE__DAGS_FOLDER": str(folder)}
    printed = run([AIRFLOW, str(folder)], env)
    return json.loads(next(line for line in printed.splitlines() if line.startswith("XCOM "))[5:])


def check(kind: str, results: Any) -> None:
    if kind == "function":
        assert results == {"rank": 0, "nodes": 2, "steps": 3}
    elif kind == "ddp":
        assert results["processes"] == 2
        assert results["loss"] < 0.01
    elif kind == "folder":
        assert results == {"slope": 2, "intercept": 1}
    else:
        assert not results


@pytest.mark.parametrize("kind", ["function", "ddp", "folder", "manifest"])
def test_with_kubeflow_pipelines(kind: str, kubeconfig: Path, tmp_path: Path) -> None:
    check(kind, with_kfp(kind, kubeconfig, tmp_path))


@pytest.mark.parametrize("kind", ["function", "ddp", "folder", "manifest"])
def test_with_airflow(kind: str, kubeconfig: Path, tmp_path: Path, airflow_home: Path) -> None:
    returned = with_airflow(kind, kubeconfig, tmp_path, airflow_home)
    check(kind, returned if kind == "function" else returned["results"])
