"""The history of a training of any framework is kept in the run's folder, and goes with its exports to card and curve."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from event_files import write_events

from trainwright.checkpoints.errors import DivergedCheckpoint
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.publish import ExportResult, export_checkpoint
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.model_card import export_page
from trainwright.checkpoints.training_history import METRICS, REPORT, history_beside, keep_metrics, read_metrics, sampled
from trainwright.storage.uri import StorageUri

NAN = float("nan")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with a checkpoint of step 20, of a framework that logs nothing in it."""
    folder = tmp_path / "workspace" / "runs" / "a"
    checkpoint = folder / "output" / "step-20"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights.npz").write_bytes(b"weights")
    (checkpoint / "COMPLETE").write_bytes(b"")
    return folder


def export(run: Path) -> ExportResult:
    return export_checkpoint(run / "output", StorageUri.from_path(run.parents[2] / "exports"), source="a/job")


def test_metrics_of_the_run_are_in_the_card_of_its_export(run: Path) -> None:
    keep_metrics(run.parents[1], "runs/a", [{"loss": 2.5, "step": 10}, {"loss": 1.5, "lr": 0.1, "step": 20}])
    facts = read_facts(open_export(export(run).uri))
    assert facts.log_history == [{"step": 10, "loss": 2.5}, {"step": 20, "loss": 1.5}]
    assert "| 20 | 1.5" in export_page(facts)


def test_event_files_are_the_history_where_there_is_no_other(run: Path) -> None:
    write_events(run / "output" / "logs", "1", [("train/loss", 10, 2.5, 1), ("train/loss", 20, 1.5, 2)])
    exported = export(run)
    assert exported.manifest.metadata["log_history"] == [{"step": 10, "loss": 2.5}, {"step": 20, "loss": 1.5}]


def test_history_with_the_most_losses_is_taken(run: Path) -> None:
    keep_metrics(run.parents[1], "runs/a", [{"loss": 9.0, "step": 20}])
    write_events(run / "output", "1", [("loss", 10, 2.5, 1), ("loss", 20, 1.5, 2)])
    assert [entry["loss"] for entry in history_beside(run / "output", run / "output" / "step-20")] == [2.5, 1.5]


def test_state_of_transformers_is_the_only_history_of_its_checkpoint(
    run: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    made = write_checkpoint(30)
    shutil.copytree(made, run / "output" / made.name)
    state = run / "output" / made.name / "trainer_state.json"
    state.write_text(json.dumps({**json.loads(state.read_bytes()), "log_history": [{"loss": 1.0, "step": 30}]}), "utf-8")
    keep_metrics(run.parents[1], "runs/a", [{"loss": 9.0, "step": 20}])
    exported = export(run)
    assert "log_history" not in exported.manifest.metadata
    assert read_facts(open_export(exported.uri)).log_history == [{"loss": 1.0, "step": 30}]


def test_training_whose_event_files_end_with_nan_is_not_exported(run: Path) -> None:
    write_events(run / "output", "1", [("loss", 10, 2.5, 1), ("loss", 20, NAN, 2)])
    with pytest.raises(DivergedCheckpoint, match="nan"):
        export(run)


def test_divergence_after_the_checkpoint_does_not_refuse_it(run: Path) -> None:
    write_events(run / "output", "1", [("loss", 20, 2.5, 1), ("loss", 30, NAN, 2)])
    assert export(run).manifest.metadata["log_history"] == [{"step": 20, "loss": 2.5}]


def test_resumed_training_replaces_the_steps_from_where_it_goes_on(run: Path) -> None:
    workspace = run.parents[1]
    keep_metrics(workspace, "runs/a", [{"loss": float(9 - step), "step": step} for step in (1, 2, 3)])
    keep_metrics(workspace, "runs/a", [{"loss": 5.0, "step": 2}])
    assert read_metrics(run) == [{"step": 1, "loss": 8.0}, {"step": 2, "loss": 5.0}]


def test_reports_without_steps_are_kept_and_not_shown_as_steps(run: Path) -> None:
    keep_metrics(run.parents[1], "runs/a", [{"loss": 2.0, "step": 1}], REPORT)
    assert (run / METRICS).read_text("utf-8") == '{"report": 1, "loss": 2.0}\n'
    assert history_beside(run / "output", run / "output" / "step-20") == []


def test_nothing_is_written_outside_the_folder_of_a_run(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries = [{"loss": 2.0, "step": 1}]
    keep_metrics(run.parents[1], "runs/other", entries)
    assert not (run.parent / "other").exists()
    (run.parent / "linked").symlink_to(tmp_path)
    keep_metrics(run.parents[1], "runs/linked", entries)
    assert not (tmp_path / METRICS).exists()
    assert "is a link" in caplog.text


@pytest.mark.parametrize(
    "line", ['{"loss": 1}', "[1]", "{", '{"step": true, "loss": 1}', '{"step": 1.5, "loss": 1}', '{"step": NaN}']
)
def test_invalid_lines_are_left_out(run: Path, line: str) -> None:
    (run / METRICS).write_text(f'{line}\n{{"step": 2, "loss": 1, "name": "x"}}\n', "utf-8")
    assert read_metrics(run) == [{"step": 2, "loss": 1}]


def test_manifest_has_a_sample_of_a_long_history() -> None:
    found = sampled([{"step": step, "loss": 1.0, "lr": 2.0} for step in range(5000)])
    assert len(found) == 500
    assert (found[0]["step"], found[-1]) == (0, {"step": 4999, "loss": 1.0})
