"""The retraining DAG under a real Airflow, three times in a row, as `make retrain-demo` shows it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from quickstart_command import SETTINGS, processes_of, run
from waiting import eventually

from trainwright.checkpoints import verify_export

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_new_data_are_trained_on_and_old_ones_skipped(runs: Path) -> None:
    command = [sys.executable, "-m", "trainwright.quickstart.retrain_demo", "--runs", str(runs), "--preset", "tiny"]
    status, output = run([*command, "--settings", json.dumps(SETTINGS)], runs / "demo.log")
    assert status == 0, output
    folder = runs / "retrain-001"
    first, unchanged, new_rows = (
        json.loads((folder / f"{act}.json").read_text("utf-8")) for act in ("first", "unchanged", "new-rows")
    )
    assert set(first["tasks"].values()) == set(new_rows["tasks"].values()) == {"success"}
    assert unchanged["tasks"]["new-data"] == unchanged["tasks"]["train"] == unchanged["tasks"]["publish"] == "skipped"
    (before,), (after,) = first["events"], new_rows["events"]
    assert unchanged["reason"] == f"the run retrain-001-first was trained on the same dataset, {before['dataset_digest']}"
    assert before["dataset_digest"] != after["dataset_digest"]
    for event in (before, after):
        assert verify_export(event["checkpoint"], digest=event["manifest"]).step == event["step"] == 20
    assert unchanged["events"] == []
    kept = {path.name for path in (folder / "workspace/runs").iterdir() if not path.name.startswith(".")}
    assert kept == {"retrain-001-first", "retrain-001-new-rows"}  # the one of a skipped run had nothing in it
    eventually(lambda: not processes_of(runs), 20, "processes that are left")
