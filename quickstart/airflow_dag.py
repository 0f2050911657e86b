"""Run a bundled DAG once with `dag.test()`, on a separate Airflow without a scheduler and with its database in the runs folder.

It runs in its own process, because Airflow reads its configuration on import.
Usage: python -m trainwright.quickstart.airflow_dag MODULE PARAMETERS_JSON [REPORT_FILE]
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def configure(home: Path) -> dict[str, str]:
    """Environment variables for an Airflow process that uses this home and none of the user's configuration."""
    dags = find_spec("trainwright.example_dags")
    assert dags is not None
    assert dags.origin is not None
    home.mkdir(parents=True, exist_ok=True)
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(Path(dags.origin).parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def main() -> int:
    """Exit status 0 if the run succeeded, else 1. The report is the result of `_report`, as JSON."""
    module, parameters, *report = sys.argv[1:]
    from airflow import __version__
    from airflow.utils import db

    # The database is migrated once for each version of Airflow.
    stamp = Path(os.environ["AIRFLOW_HOME"]) / f"migrated-{__version__}"
    if not stamp.exists():
        logging.disable(logging.INFO)
        db.initdb()
        logging.disable(logging.NOTSET)
        stamp.touch()
    dag = import_module(f"trainwright.example_dags.{module}").dag
    run = dag.test(run_conf=json.loads(parameters), logical_date=datetime.now(UTC))
    if report:
        Path(report[0]).write_text(json.dumps(_report(run)), "utf-8")
    return 0 if str(run.state) in ("success", "DagRunState.SUCCESS") else 1


def _report(run: Any) -> dict[str, Any]:
    """The state of each task, the reason for skipping (XCom `reason`), and the `extra` of the asset events of the run."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        tasks = run.get_task_instances(session=session)
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == run.run_id))
        reasons = [ti.xcom_pull(task_ids=ti.task_id, key="reason", session=session) for ti in tasks]
        return {
            "run": run.run_id,
            "tasks": {ti.task_id: str(ti.state) for ti in tasks},
            "reason": next((reason for reason in reasons if reason), ""),
            "events": [event.extra for event in events],
        }


if __name__ == "__main__":
    sys.exit(main())
