"""The examples of the operators: every operator has one, the page shows them, and they run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import embedded
from support.optional_packages import require_packages

import trainwright.operators
from trainwright.operators import example_dags
from trainwright.quickstart.airflow_dag import configure

require_packages("airflow")

FOLDER = Path(example_dags.__path__[0])
NAMES = sorted(path.stem for path in FOLDER.glob("example_*.py"))
NOT_SHOWN = {"TrainJobTrigger", "TrainwrightHook", "Data", "Deferral", "Ending", "Harness", "Logging", "Secrets"}
"""What tasks use themselves, and groups for which others stand."""
RUN = """
import json, sys
from datetime import UTC, datetime
from importlib import import_module
from airflow.utils import db
from airflow.utils.session import create_session

db.initdb()
for name in sys.argv[1:]:
    run = import_module(f"trainwright.operators.example_dags.{name}").dag.test(logical_date=datetime.now(UTC))
    with create_session() as session:
        for task in run.get_task_instances(session=session):
            value = task.xcom_pull(task_ids=task.task_id, session=session)
            print("ENDED", json.dumps([name, task.task_id, str(task.state), value], default=str))
"""


@pytest.mark.parametrize("name", NAMES)
def test_example_loads_and_the_page_shows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER.resolve().parents[1] / "docs"))
    import guides_page

    dag = import_module(f"trainwright.operators.example_dags.{name}").dag
    assert dag.dag_id == name
    dag.check_cycle()
    assert set(NAMES) == set(guides_page.TITLES)
    assert guides_page.PAGE.read_text("utf-8") == guides_page.page(), "run `make docs`"


def test_every_operator_has_an_example() -> None:
    shown = set(re.findall(r"\w+", "\n".join((FOLDER / f"{name}.py").read_text("utf-8") for name in NAMES)))
    assert set(trainwright.operators.__all__) - shown == NOT_SHOWN


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], list[Any]]]:
    """The state and the result of each task of the examples that need nothing but a cluster."""
    folder = tmp_path_factory.mktemp("examples")
    with embedded(folder / "cluster", node=True) as kubeconfig:
        env = {
            **os.environ,
            **configure(folder / "airflow"),
            "KUBECONFIG": str(kubeconfig),
            "AIRFLOW__CORE__DAGS_FOLDER": str(FOLDER),
        }
        command = [sys.executable, "-P", "-c", RUN, "example_training", "example_stopping"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
        lines = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("ENDED ")]
        assert lines, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        yield {(name, task): [state.rpartition(".")[2], value] for name, task, state, value in lines}


@pytest.mark.slow
@pytest.mark.wide(part="airflow")
def test_trainings_run_as_they_are_shown(ended: dict[tuple[str, str], list[Any]]) -> None:
    state, result = ended["example_training", "fit"]
    assert (state, result) == ("success", {"nodes": 2, "steps": 3})
    assert ended["example_training", "wait"][0] == "success"


@pytest.mark.slow
@pytest.mark.wide(part="airflow")
def test_jobs_are_stopped_as_it_is_shown(ended: dict[tuple[str, str], list[Any]]) -> None:
    found = {task: result for (name, task), result in ended.items() if name == "example_stopping"}
    assert {state for state, _ in found.values()} == {"success"}
    outcomes = {task: found[task][1][0]["outcome"] for task in ("suspend", "resume", "delete")}
    assert outcomes["suspend"] != outcomes["resume"]
    assert found["clean"][1] == []
