"""The links of a task in Airflow itself: stored while the task runs, kept when its worker is done, and read by the server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow_programs import run_program
from support.cluster_under_test import embedded

from trainwright.api.kinds import TRAINJOB
from trainwright.cluster import connect

pytestmark = pytest.mark.slow
DAG = """
from airflow.sdk import DAG

from trainwright.operators import TrainJobOperator

with DAG("linked", schedule=None) as dag:
    TrainJobOperator(
        task_id="submit", conn_id="c", runtime="torch-distributed", command=["true"], wait_for_completion=False,
        export_uri="gs://bucket/exports", run_id="r",
    )
"""
RUN = """
import json, sys
from datetime import UTC, datetime
from airflow.utils import db
db.initdb()
sys.path.insert(0, sys.argv[1])
import linked
run = linked.dag.test(logical_date=datetime.now(UTC))
from airflow.serialization.serialized_objects import DagSerialization
task = DagSerialization.from_dict(DagSerialization.to_dict(linked.dag)).task_dict["submit"]
(ti,) = run.get_task_instances()
print("FOUND", json.dumps({name: task.get_extra_links(ti, name) for name in task.extra_links}))
"""


def test_the_server_reads_the_links_of_a_task(tmp_path: Path) -> None:
    (tmp_path / "linked.py").write_text(DAG, "utf-8")
    with embedded(tmp_path / "cluster", node=False) as kubeconfig:
        extra = {"kubeconfig": str(kubeconfig), "trainjob_url": "https://k/{namespace}/{name}"}
        connection = json.dumps({"conn_type": "trainwright", "extra": extra})
        links = run_program(tmp_path, RUN, AIRFLOW_CONN_C=connection)
        (job,) = connect(kubeconfig).list(TRAINJOB, "default").items
    assert links == {
        "TrainJob": f"https://k/default/{job['metadata']['name']}",
        "Logs": "",
        "Checkpoint": "https://console.cloud.google.com/storage/browser/bucket/exports/r",
    }
