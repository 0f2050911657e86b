"""The main job as an Airflow DAG: same table, same folders, a failure that says why, an export that another training resumes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories import train_request
from quickstart_command import SETTINGS, command, processes_of, run
from support.running_plane import running_plane
from support.scripted_image import use_scripted_programs
from support.waiting import eventually

from trainwright.api.kinds import CLAIM
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.restore import verify_export
from trainwright.jobs import Deadlines, Identity, Submission, Waiting
from trainwright.jobs.trainers.sft import SftSettings
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.storage.uri import StorageUri
from trainwright.workspace import read_receipt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
AIRFLOW = ("--orchestrator", "airflow")


@pytest.fixture(scope="module")
def finished(runs: Path) -> str:
    """The output of a DAG run that has ended well, which tests only look at."""
    status, output = run(command(runs, *AIRFLOW, "--name", "dag"), runs / "dag.log")
    assert status == 0, output
    return output


def test_the_dag_ends_with_the_same_table(finished: str, runs: Path) -> None:
    result = json.loads((runs / "dag/result.json").read_text("utf-8"))
    assert set(result["durations"]) == {
        "start-run",
        "initialize-dataset",
        "initialize-model",
        "train",
        "export-checkpoint",
        "evaluate",
        "whether-to-promote",
        "whether-to-register",
    }
    assert verify_export(result["checkpoint"], digest=result["digest"]).step == 20
    assert "held-out loss" in finished
    eventually(lambda: not processes_of(runs), 20, "processes that are left")


def test_a_dataset_without_the_expected_columns_fails_before_training(runs: Path, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text('{"left": "x", "right": "y"}\n')
    status, output = run(command(runs, *AIRFLOW, "--name", "columns", "--dataset", str(data)), runs / "columns.log")
    assert status == 1
    assert "left, right" in output
    assert "✗ initialize-dataset" in output
    assert "train ..." not in output


def only(store: Path) -> Path:
    """The one folder of a store of prepared datasets or models."""
    (folder,) = (path for path in store.iterdir() if not path.name.startswith("."))
    return folder


@pytest.mark.usefixtures("finished")
def test_a_training_on_a_new_claim_resumes_from_the_export(runs: Path, tmp_path: Path) -> None:
    """Twenty steps with TRL here, and ten more there, on two nodes, with the scripted trainer."""
    model, dataset = (read_receipt(only(runs / "dag/workspace" / store)) for store in ("models", "datasets"))
    assert model is not None
    assert dataset is not None
    request = train_request(
        runtime="trl-sft",
        workspace="pvc://second?size=1Gi",
        dataset_uri=dataset.source,
        model_uri=model.source,
        args=SftSettings(**{**SETTINGS, "steps": 30}).arguments(),
        env={"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        num_nodes=2,
        num_proc_per_node=1,
        resume=str(StorageUri.from_path(runs / "dag/export/dag")),
    )
    use_scripted_programs(tmp_path / "home", tmp_path / "programs")
    with running_plane(tmp_path) as plane:
        deadlines = Deadlines(queue=120, start=120, run=240)
        run_to_end(
            Submission(plane.cluster, request, Identity("kfp", "second", "train"), "default"),
            Waiting(WaitSettings(deadlines=deadlines)),
        )
        assert plane.cluster.get(CLAIM, "second", "default")["spec"]["accessModes"] == ["ReadWriteMany"]
    output_folder = tmp_path / "home/node/claims/default/second/runs/second/output"
    export = open_export(str(StorageUri.from_path(runs / "dag/export/dag/checkpoint-20")))
    exported = json.loads(export.read("trainer_state.json") or b"")
    trained = json.loads((output_folder / "checkpoint-30/trainer_state.json").read_bytes())
    steps = [entry["step"] for entry in trained["log_history"] if "loss" in entry]
    assert steps == list(range(2, 31, 2))
    until = [entry for entry in trained["log_history"] if entry["step"] <= 20 and "loss" in entry]
    assert until == [entry for entry in exported["log_history"] if "loss" in entry], "the first twenty are those of the export"
    decided = [path.read_text("utf-8") for path in (tmp_path / "home").rglob("containers/resume-point/*/log")]
    assert len(decided) == 2
    assert all("resuming from" in text and "checkpoint-20" in text for text in decided)
