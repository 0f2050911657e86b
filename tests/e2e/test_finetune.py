"""The main job from end to end: two nodes under torchrun, exported to S3, verified, evaluated; then nothing is left running.

The usual environment variables name the store, a real S3 server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from quickstart_command import command, manifest_digest, processes_of, run, start
from servers.s3_server import BUCKET, S3Server, name_server
from support.scripted_image import use_scripted_programs
from support.waiting import eventually

from trainwright.checkpoints.restore import verify_export
from trainwright.evaluation.loss_curve import LEFT, RIGHT, WIDTH
from trainwright.quickstart.run_folder import lock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def finished(runs: Path, s3_server: S3Server) -> str:
    """The output of a run that has ended well, which tests only look at."""
    with pytest.MonkeyPatch.context() as patch:
        name_server(patch, s3_server, runs)
        status, output = run(first(runs), runs / "first.log")
    assert status == 0, output
    return output


def first(runs: Path, **settings: Any) -> list[str]:
    """Its command."""
    return command(runs, "--name", "first", "--export", f"s3://{BUCKET}/{runs.name}", **settings)


def test_finetune_reports_losses_samples_durations_and_places(finished: str, runs: Path) -> None:
    for words in ("held-out loss", "sample completion", "initialize-dataset", "train", "evaluate", "manifest", "loss curve"):
        assert words in finished
    result = json.loads((runs / "first/result.json").read_text("utf-8"))
    assert result["after"]["loss"] < result["before"]["loss"]
    assert set(result["durations"]) == {
        "start-run",
        "initialize-dataset",
        "initialize-model",
        "train",
        "export-checkpoint",
        "evaluate",
        "clean-up",
    }
    log = (runs / "first/pipeline.log").read_text("utf-8")
    assert "Starts from nothing: there is no checkpoint of this run" in log
    assert (runs / "first/loss-curve.png").read_bytes().startswith(b"\x89PNG")
    (summary,) = (runs / "first/workspace/runs/first/evaluation").glob("*/summary.md")
    assert "held-out loss" in summary.read_text("utf-8")
    assert "<svg" in summary.with_name("loss-curve.html").read_text("utf-8")
    (shown,) = (runs / "first/pipeline").rglob("evaluate/summary")
    assert shown.read_bytes() == summary.read_bytes()


@pytest.mark.usefixtures("finished")
def test_loss_curve_of_the_training_has_every_logged_step(runs: Path) -> None:
    (curve,) = (runs / "first/pipeline").rglob("train/loss_curve")
    text = curve.read_text("utf-8")
    found = re.search(r'polyline points="([^"]*)"', text)
    assert found is not None
    at = [float(point.partition(",")[0]) for point in found[1].split()]
    assert at == pytest.approx([LEFT + step / 20 * (WIDTH - RIGHT - LEFT) for step in range(2, 21, 2)], abs=0.1)
    assert ">training step<" in text


def test_training_that_diverges_is_not_exported(runs: Path) -> None:
    exports = runs / "exports"
    status, output = run(
        command(
            runs,
            "--name",
            "diverged",
            "--nodes",
            "1",
            "--export",
            exports.as_uri(),
            learning_rate=1e30,
            method="full",
            logging_steps=1,
        ),
        runs / "diverged.log",
    )
    assert status != 0
    assert re.search(r"diverged: (loss|grad_norm) is (nan|inf) since step \d+", output), output
    assert not list(exports.rglob("manifest.json"))


@pytest.mark.usefixtures("s3")
def test_the_export_is_whole_and_has_the_digest_that_was_shown(finished: str, runs: Path) -> None:
    result = json.loads((runs / "first/result.json").read_text("utf-8"))
    assert result["checkpoint"] == f"s3://{BUCKET}/{runs.name}/first/checkpoint-20"
    manifest = verify_export(result["checkpoint"], digest=manifest_digest(finished))
    assert manifest.step == 20
    assert {"adapter_model.safetensors", "trainer_state.json"} <= {file.path for file in manifest.files}


@pytest.mark.usefixtures("finished")
def test_no_file_of_the_run_contains_the_key_of_the_store(runs: Path, s3_server: S3Server) -> None:
    secret = s3_server.secret_access_key.encode()
    assert not [path for path in (runs / "first").rglob("*") if path.is_file() and secret in path.read_bytes()]


@pytest.mark.usefixtures("finished")
def test_nothing_is_left_running(runs: Path) -> None:
    eventually(lambda: not processes_of(runs), 20, "processes that are left")


@pytest.mark.usefixtures("finished", "s3")
def test_a_finished_run_shows_its_result_again(runs: Path) -> None:
    status, output = run(first(runs), runs / "again.log", 30)
    assert status == 0
    assert "has already finished" in output


@pytest.mark.usefixtures("finished", "s3")
def test_a_name_stands_for_one_request(runs: Path) -> None:
    status, output = run(first(runs, steps=21), runs / "other.log", 30)
    assert status == 2
    assert "is a run of another request" in output


@pytest.mark.usefixtures("finished")
def test_a_run_that_another_command_works_on_is_left_alone(runs: Path) -> None:
    other = runs / "busy"
    other.mkdir()
    held = lock(other / ".lock")
    assert held is not None
    try:
        status, output = run(command(runs, "--name", "busy"), runs / "busy.log", 30)
    finally:
        os.close(held)
    assert status == 2
    assert "is in use by another command" in " ".join(output.split())


def test_two_at_once_share_a_cluster_that_the_last_one_stops(tiny_model: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(tiny_model, runs / ".models" / tiny_model.name)
    use_scripted_programs(runs / ".home", tmp_path / "programs", step_seconds=0.2)
    logs = [open(runs / f"pair-{number}.log", "w", encoding="utf-8") for number in range(2)]  # noqa: SIM115
    # The second has four times the steps, so that the first is done while it trains.
    processes = [
        start(command(runs, "--name", f"pair-{number}", steps=20 * (3 * number + 1)), log) for number, log in enumerate(logs)
    ]
    statuses = [process.wait(300) for process in processes]
    assert statuses == [0, 0], "\n".join((runs / f"pair-{number}.log").read_text("utf-8") for number in range(2))
    for log in logs:
        log.close()
    eventually(lambda: not processes_of(runs), 20, "processes that are left")


def test_a_dataset_without_the_expected_columns_fails_before_training(runs: Path, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text('{"left": "x", "right": "y"}\n')
    status, output = run(command(runs, "--name", "columns", "--dataset", str(data)), runs / "columns.log")
    assert status == 1
    assert "left, right" in output
    assert "expected" in output
    assert "Traceback" not in output
    assert "train ..." not in output
