"""The same main job as an Airflow DAG: same table, same folders, and a failure that says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quickstart_command import command, processes_of, run
from support.waiting import eventually

from trainwright.checkpoints import verify_export

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
AIRFLOW = ("--orchestrator", "airflow")


def test_the_dag_ends_with_the_same_table(runs: Path) -> None:
    status, output = run(command(runs, *AIRFLOW, "--name", "dag"), runs / "dag.log")
    assert status == 0, output
    result = json.loads((runs / "dag/result.json").read_text("utf-8"))
    assert set(result["durations"]) == {
        "start-run",
        "initialize-dataset",
        "initialize-model",
        "train",
        "export-checkpoint",
        "evaluate",
    }
    assert verify_export(result["checkpoint"], digest=result["digest"]).step == 20
    assert "held-out loss" in output
    eventually(lambda: not processes_of(runs), 20, "processes that are left")


def test_a_dataset_without_the_expected_columns_fails_before_training(runs: Path, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text('{"left": "x", "right": "y"}\n')
    status, output = run(command(runs, *AIRFLOW, "--name", "columns", "--dataset", str(data)), runs / "columns.log")
    assert status == 1
    assert "left, right" in output
    assert "✗ initialize-dataset" in output
    assert "train ..." not in output
