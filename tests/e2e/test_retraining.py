"""The retraining DAG under a real Airflow, three times in a row, as `make retrain-demo` shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quickstart_command import SETTINGS, processes_of, run
from support.scripted_image import use_scripted_programs
from support.waiting import eventually

from trainwright.checkpoints.promotion import Alias
from trainwright.checkpoints.restore import verify_export
from trainwright.quickstart.airflow_dag import configure
from trainwright.storage.uri import StorageUri

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


PROMOTED = ("start-run", "train", "evaluate", "promote", "publish", "keep-exports", "tidy")


def test_new_data_are_trained_on_and_old_ones_skipped(runs: Path) -> None:
    """The last run starts from the weights of the champion, is compared with it, and is then rolled back."""
    use_scripted_programs(runs / ".home", runs / "programs")
    command = [sys.executable, "-m", "trainwright.quickstart.retrain_demo", "--runs", str(runs), "--preset", "tiny"]
    status, output = run([*command, "--settings", json.dumps(SETTINGS)], runs / "demo.log", 450)
    assert status == 0, output
    folder = runs / "retrain-001"
    first, unchanged, new_rows = (
        json.loads((folder / f"{act}.json").read_text("utf-8")) for act in ("first", "unchanged", "new-rows")
    )
    for act in (first, new_rows):
        assert {act["tasks"][task] for task in PROMOTED} == {"success"}
        assert act["tasks"]["roll-back"] == "skipped"
    assert first["tasks"]["evaluate-champion"] == "skipped"
    assert new_rows["tasks"]["evaluate-champion"] == "success"
    skipped = {task for task, state in unchanged["tasks"].items() if state == "skipped"}
    assert skipped == set(unchanged["tasks"]) - {
        *("roll-back-or-train", "start-run", "initialize-dataset", "initialize-model", "read-champion", "tidy")
    }
    (before,), (after,) = first["events"], new_rows["events"]
    assert (
        unchanged["reason"] == f"the champion {before['checkpoint']} was trained on the same dataset, {before['dataset_digest']}"
    )
    assert before["dataset_digest"] != after["dataset_digest"]
    for event in (before, after):
        assert verify_export(event["checkpoint"], digest=event["manifest"]).step == event["step"] == 20
    assert (before["promoted"], before["champion_uri"]) == (True, before["checkpoint"])
    assert f"the adapter is that of {before['checkpoint']}; training starts at step 0" in (folder / "new-rows.log").read_text(
        "utf-8"
    )
    assert after["promoted"], after["reason"]
    assert (after["champion_uri"], after["previous_uri"]) == (after["checkpoint"], before["checkpoint"])
    assert unchanged["events"] == []
    kept = {path.name for path in (folder / "workspace/runs").iterdir() if not path.name.startswith(".")}
    assert kept == {"retrain-001-first", "retrain-001-new-rows"}  # the one of a skipped run had nothing in it
    eventually(lambda: not processes_of(runs), 20, "processes that are left")
    _roll_back(folder, before["checkpoint"])


def _roll_back(folder: Path, expected: str) -> None:
    exports = str(StorageUri.from_path(folder / "export"))
    parameters = json.dumps({"roll_back": True, "export_uri": exports})
    command = [sys.executable, "-P", "-m", "trainwright.quickstart.airflow_dag", "scheduled_retraining", parameters]
    log, report = folder / "roll-back.log", folder / "roll-back.json"
    with log.open("wb") as printed:
        env = {**os.environ, **configure(folder / ".airflow")}
        done = subprocess.run(
            [*command, str(report)], env=env, stdout=printed, stderr=subprocess.STDOUT, timeout=120, check=False
        )
    assert done.returncode == 0, log.read_text("utf-8")
    states = json.loads(report.read_text("utf-8"))["tasks"]
    assert {task for task, state in states.items() if state != "skipped"} == {"roll-back-or-train", "roll-back"}
    record = Alias(exports).read()
    assert record is not None
    assert record.current.uri == expected
