"""The checkpoint to export is that of a step, the last one, or the one that transformers' Trainer has recorded as the best."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import select_checkpoint
from trainwright.checkpoints.job_record import Writer, record_writer, recorded_writers
from trainwright.checkpoints.publish import ExportOptions, export_checkpoint
from trainwright.checkpoints.restore import verify_export
from trainwright.checkpoints.training_start import record_restored
from trainwright.cli.app import app
from trainwright.steps.requests import ExportBeside, ExportCheckpoint, StepRun
from trainwright.steps.workspace_steps import do_step

Train = Callable[..., Path]
RUN = StepRun("kfp", "a")


@pytest.fixture
def train(output: Path, write_checkpoint: Callable[..., Path]) -> Train:
    """`train(best)`: checkpoints of the steps 2, 4 and 6, of which the last names `best` as the best one."""

    def run(best: Any = "/workspace/output/checkpoint-4", **files: bytes | None) -> Path:
        for step in (2, 4, 6):
            state = {"global_step": step, "best_model_checkpoint": best, "log_history": [{"step": step, "eval_loss": 5 - step}]}
            write_checkpoint(step, bytes([step]), **{"trainer_state.json": json.dumps(state).encode(), **files})
        return output

    return run


def selected(output: Path, which: Any = "") -> int:
    return select_checkpoint(output, which=which).step


@pytest.mark.parametrize(
    "recorded", ["/workspace/output/checkpoint-4", "checkpoint-4", "C:\\out\\checkpoint-4", "/elsewhere/../checkpoint-4/"]
)
def test_best_checkpoint_is_found_by_name_below_the_output(train: Train, recorded: str) -> None:
    assert selected(train(recorded), "best") == 4


@pytest.mark.parametrize(("loads_best", "expected"), [(True, 4), (False, 6)])
def test_default_is_the_best_one_if_the_training_loads_it_at_its_end(train: Train, loads_best: bool, expected: int) -> None:
    output = train()
    record_writer(output, Writer("job", "1", loads_best=loads_best))
    assert selected(output) == expected
    assert selected(output, "last") == 6


def test_default_is_the_last_one_before_the_first_evaluation(train: Train) -> None:
    output = train(None)
    record_writer(output, Writer("job", "1", loads_best=True))
    assert selected(output) == 6


def test_last_job_decides_which_one_is_the_default(train: Train) -> None:
    output = train()
    record_writer(output, Writer("first", "1", loads_best=True))
    record_writer(output, Writer("second", "2"))
    assert selected(output) == 6


@pytest.mark.parametrize("recorded", [None, "", 4])
def test_best_is_refused_without_a_metric(train: Train, recorded: Any) -> None:
    with pytest.raises(NoCheckpoint, match=r"checkpoint-6/trainer_state.json names no best.*eval_strategy.*--load_best_model"):
        selected(train(recorded), "best")


def test_best_that_is_incomplete_or_gone_is_an_error_with_its_name(train: Train) -> None:
    output = train()
    (output / "checkpoint-4" / "optimizer.pt").unlink()
    with pytest.raises(CheckpointError, match=r"output/checkpoint-4 is incomplete: optimizer.pt"):
        selected(output, "best")
    shutil.rmtree(output / "checkpoint-4")
    record_writer(output, Writer("job", "1", loads_best=True))
    for which in ("best", ""):
        with pytest.raises(NoCheckpoint, match=r"has no 'checkpoint-4', which checkpoint-6/.*save_total_limit"):
            selected(output, which)


@pytest.mark.medium
def test_best_of_the_training_that_was_resumed_from_is_not_looked_for_here(train: Train) -> None:
    output = train("/workspace/output/checkpoint-1")
    record_writer(output, Writer("job", "1", loads_best=True))
    with pytest.raises(NoCheckpoint):
        selected(output)
    record_restored(output, "checkpoint-2", "s3://exports/other/checkpoint-2")
    assert selected(output) == 6
    with pytest.raises(NoCheckpoint):
        selected(output, "best")


@pytest.mark.medium
def test_best_outside_of_the_output_is_not_exported(train: Train, tmp_path: Path) -> None:
    output = train(str(tmp_path / "other" / "checkpoint-9"))
    shutil.copytree(output / "checkpoint-6", tmp_path / "other" / "checkpoint-9")
    (output / "checkpoint-9").symlink_to(tmp_path / "other" / "checkpoint-9")
    for recorded in (str(tmp_path / "other" / "checkpoint-9"), "../other/checkpoint-9", "..", "/"):
        with pytest.raises(NoCheckpoint, match="as the best checkpoint"):
            selected(train(recorded), "best")


def test_step_and_best_exclude_each_other(train: Train) -> None:
    with pytest.raises(CheckpointError, match="step 2 and which='best'"):
        select_checkpoint(train(), 2, "best")


@pytest.mark.medium
def test_pointers_name_the_best_one_that_was_exported_last(train: Train, tmp_path: Path) -> None:
    output, target = train(), tmp_path / "exports"
    export_checkpoint(output, target.as_uri(), source="a/job")
    best = export_checkpoint(output, target.as_uri(), source="a/job", options=ExportOptions(which="best"))
    assert (best.manifest.step, best.manifest.metrics) == (4, {"eval_loss": 1.0})
    assert json.loads((target / "latest.json").read_bytes())["checkpoint"] == "checkpoint-4"
    # Metric of the run's exports, whatever training found best.
    assert json.loads((target / "best.json").read_bytes())["checkpoint"] == "checkpoint-6"
    verify_export(best.uri, digest=best.digest)


@pytest.mark.medium
def test_step_exports_the_last_one_beside_the_training_and_the_best_one_at_its_end(train: Train, tmp_path: Path) -> None:
    shutil.copytree(train(), tmp_path / "runs" / "a" / "output")
    record_writer(tmp_path / "runs" / "a" / "output", Writer("job", "1", loads_best=True))
    asked = {"export_uri": f"file://{tmp_path}/exports", "trainjob": "job"}
    assert do_step(tmp_path, ExportBeside(**asked, look=1, which="best"), RUN)["step"] == 6
    assert do_step(tmp_path, ExportCheckpoint(**asked), RUN)["step"] == 4
    assert do_step(tmp_path, ExportCheckpoint(**asked, which="last"), RUN)["step"] == 6


def test_record_of_a_job_says_whether_it_loads_the_best(output: Path) -> None:
    output.mkdir()
    writer = Writer.from_environment({"TRAINJOB_NAME": "job", "TRAINWRIGHT_RESUME_JOB": "1", "TRAINWRIGHT_LOADS_BEST": "true"})
    assert writer is not None
    record_writer(output, writer)
    assert recorded_writers(output) == [Writer("job", "1", loads_best=True)]


def test_command_exports_the_best_one(train: Train, tmp_path: Path) -> None:
    command = ["export", str(train()), f"file://{tmp_path}/exports", "--run", "a", "-o", "json"]
    done = CliRunner().invoke(app, [*command, "--which", "best"])
    assert json.loads(done.stdout)["step"] == 4
    for other in (["--watch"], ["--step", "2"]):
        refused = CliRunner().invoke(app, [*command, "--which", "best", *other])
        assert (refused.exit_code, "--which selects one checkpoint" in refused.output) == (2, True)
