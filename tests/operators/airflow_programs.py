"""Programs and DAGs in a process with Airflow, whose database and DAGs are in a folder of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainwright.quickstart.airflow_dag import configure

RUN = """
import json, sys
from datetime import UTC, datetime
from airflow.utils import db
db.initdb()
sys.path.insert(0, sys.argv[1])
import guarded
run = guarded.dag.test(logical_date=datetime.now(UTC))
from airflow.utils.session import create_session
with create_session() as session:
    tasks = run.get_task_instances(session=session)
    found = {ti.task_id: [str(ti.state), ti.xcom_pull(task_ids=ti.task_id, session=session)] for ti in tasks}
    print("FOUND", json.dumps({**found, "": [run.state, None]}))
"""


def run_dag(folder: Path, dag: str, **environment: str) -> dict[str, Any]:
    """Run the `dag` of a module, and return state and result of each task; the state of the run is under an empty name."""
    (folder / "guarded.py").write_text(dag, "utf-8")
    found: dict[str, Any] = run_program(folder, RUN, **environment)
    return found


def run_program(folder: Path, program: str, *arguments: str, **environment: str) -> Any:
    """Run a program, which gets the folder as its first argument, and return the JSON that it prints after FOUND."""
    env = {**os.environ, **configure(folder / "airflow"), "AIRFLOW__CORE__DAGS_FOLDER": str(folder), **environment}
    command = [sys.executable, "-P", "-c", program, str(folder), *arguments]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    printed = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    print(done.stdout[-4000:], done.stderr[-4000:])  # shown where the test fails
    assert printed
    return json.loads(printed[0][6:])
