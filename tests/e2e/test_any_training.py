"""The examples of the README as they stand there: a function, a script for torchrun, a folder and a manifest, each through
Kubeflow Pipelines and through Airflow, on an embedded cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import embedded
from support.local_pipeline import run_here

from trainwright.quickstart.airflow_dag import configure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
EXAMPLES = {
    match[1]: match[0]
    for match in re.finditer(r"# (\w+: \w+)\n(?:.*?)(?=```)", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
}
KINDS = ("function", "ddp", "folder", "manifest")
WIDE = pytest.mark.wide(part="runtimes")
WITH_KFP = [pytest.param(kind, marks=[] if kind in ("function", "ddp") else WIDE) for kind in KINDS]
WITH_AIRFLOW = [pytest.param(kind, marks=[] if kind in ("folder", "manifest") else WIDE) for kind in KINDS]
"""CI runs each kind with one orchestrator."""
AIRFLOW = """
import importlib, json, sys, traceback
from datetime import UTC, datetime
from airflow.utils import db
from airflow.utils.session import create_session

db.initdb()
sys.path.insert(0, sys.argv[1])
for kind in sys.argv[2:]:
    try:
        run = importlib.import_module(f"example_{kind}").dag.test(logical_date=datetime.now(UTC))
        if str(run.state) not in ("success", "DagRunState.SUCCESS"):
            raise RuntimeError(f"the run of {kind} ended as {run.state}")
        with create_session() as session:
            (task,) = run.get_task_instances(session=session)
            print("RETURNED", json.dumps([kind, task.xcom_pull(task_ids=task.task_id, session=session)]))
    except Exception:
        traceback.print_exc()
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded(tmp_path_factory.mktemp("cluster"), node=True) as path:
        yield path


def selected(request: pytest.FixtureRequest, test: str) -> list[str]:
    """The kinds with which a test runs in this session."""
    return [item.callspec.params["kind"] for item in request.session.items if getattr(item, "originalname", "") == test]


@dataclass
class Ran:
    """What was printed by all examples of an orchestrator, and what the only step of each returned."""

    returned: dict[str, Any]
    printed: str

    def of(self, kind: str) -> Any:
        assert kind in self.returned, self.printed
        return self.returned[kind]


@pytest.fixture(scope="module")
def with_kfp(request: pytest.FixtureRequest, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What the only step of each pipeline returned."""
    folder = tmp_path_factory.mktemp("kfp")
    returned, printed = {}, []
    for kind in selected(request, "test_with_kubeflow_pipelines"):
        (folder / f"{kind}.py").write_text(EXAMPLES[f"kfp: {kind}"], "utf-8")
        with contextlib.chdir(ROOT):
            ended, lines = run_here(str(folder / f"{kind}.py"), {}, folder / kind, kubeconfig)
        printed.append(lines)
        if ended.state == "SUCCEEDED":
            (output,) = [path for path in (folder / kind).rglob("executor_output.json") if path.parent.name != "clean-up"]
            returned[kind] = json.loads(output.read_bytes())["parameterValues"]
    return Ran(returned, "\n".join(printed)[-12000:])


@pytest.fixture(scope="module")
def with_airflow(request: pytest.FixtureRequest, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The XCom of the only task of each DAG."""
    folder, kinds = tmp_path_factory.mktemp("airflow"), selected(request, "test_with_airflow")
    for kind in kinds:
        (folder / f"example_{kind}.py").write_text(EXAMPLES[f"airflow: {kind}"], "utf-8")
    own = {"KUBECONFIG": str(kubeconfig), **configure(folder / "home"), "AIRFLOW__CORE__DAGS_FOLDER": str(folder)}
    # All in one process, because importing Airflow takes longer than most of them.
    command = [sys.executable, "-P", "-c", AIRFLOW, str(folder), *kinds]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    returned = [json.loads(line[9:]) for line in done.stdout.splitlines() if line.startswith("RETURNED ")]
    return Ran(dict(returned), f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}")


def test_there_is_an_example_of_each_kind_for_each_orchestrator() -> None:
    assert set(EXAMPLES) == {f"{orchestrator}: {kind}" for orchestrator in ("kfp", "airflow") for kind in KINDS}
    for name, text in EXAMPLES.items():
        assert len(text.strip().splitlines()) <= 14, name


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


@pytest.mark.parametrize("kind", WITH_KFP)
def test_with_kubeflow_pipelines(kind: str, with_kfp: Ran) -> None:
    returned = with_kfp.of(kind)
    assert returned["trainjob"]
    check(kind, returned["results"])


@pytest.mark.parametrize("kind", WITH_AIRFLOW)
def test_with_airflow(kind: str, with_airflow: Ran) -> None:
    returned = with_airflow.of(kind)
    check(kind, returned if kind == "function" else returned["results"])
