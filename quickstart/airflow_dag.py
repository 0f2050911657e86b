"""Run the DAG `trainwright_finetune` once with `dag.test()`, on an Airflow of its own: no scheduler, a database in the runs folder.

A process of its own, since Airflow reads its configuration when it is imported.
Usage: python -m trainwright.quickstart.airflow_dag PARAMETERS_JSON
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path


def configure(home: Path) -> dict[str, str]:
    """The variables that give an Airflow process this home and nothing of the user's."""
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
    """Exit status 0 when every task succeeded, else 1."""
    parameters = json.loads(sys.argv[1])
    _migrate()
    from trainwright.example_dags.finetune import dag

    run = dag.test(run_conf=parameters, logical_date=datetime.now(UTC))
    return 0 if str(run.state) in ("success", "DagRunState.SUCCESS") else 1


def _migrate() -> None:
    """Bring the database to this Airflow's schema: seconds the first time, nothing afterwards."""
    from airflow import __version__
    from airflow.utils import db

    stamp = Path(os.environ["AIRFLOW_HOME"]) / f"migrated-{__version__}"
    if not stamp.exists():
        logging.disable(logging.INFO)
        db.initdb()
        logging.disable(logging.NOTSET)
        stamp.touch()


if __name__ == "__main__":
    sys.exit(main())
