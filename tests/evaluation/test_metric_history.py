"""The metrics that a waiting step has seen, as a loss curve: each report once, with its step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from trainwright.evaluation.loss_curve import MetricHistory, kept_history
from trainwright.jobs.wait.job_events import Logged, Metrics, StatusMessage


def reported(*reports: dict[str, str]) -> MetricHistory:
    history = MetricHistory()
    for report in reports:
        history((StatusMessage("x"), Metrics(tuple(report.items()))))
    return history


def test_each_step_has_its_values_also_those_that_stay_the_same() -> None:
    history = reported(
        {"loss": "2", "epoch": "1", "step": "5"}, {"loss": "1", "epoch": "1", "step": "10"}, {"loss": "1", "step": "15"}
    )
    assert history.entries == [
        {"loss": 2.0, "epoch": 1.0, "step": 5},
        {"loss": 1.0, "epoch": 1.0, "step": 10},
        {"loss": 1.0, "step": 15},
    ]


def test_report_repeated_later_adds_nothing() -> None:
    history = reported(
        {"loss": "2", "step": "5", "current_step": "6", "total_steps": "40"},
        {"loss": "2", "step": "5", "current_step": "9", "total_steps": "40"},
    )
    assert history.entries == [{"loss": 2.0, "step": 5}]


def test_evaluation_and_end_have_their_steps() -> None:
    values = {"loss": "2", "step": "20", "eval_loss": "1", "eval_step": "25", "train_runtime": "9", "current_step": "29"}
    assert reported(values).entries == [
        {"loss": 2.0, "step": 20},
        {"eval_loss": 1.0, "step": 25},
        {"train_runtime": 9.0, "step": 29},
    ]


def test_reports_of_transformers_alone_are_at_the_step_at_which_they_are_sent() -> None:
    history = reported(
        {"total_steps": "40"},
        {"loss": "2", "epoch": "0.25", "current_step": "12", "total_steps": "40"},
        {"loss": "2", "epoch": "0.25", "current_step": "15", "total_steps": "40"},
        {"loss": "1", "epoch": "1"},
    )
    assert history.entries == [{"loss": 2.0, "epoch": 0.25, "step": 12}, {"loss": 1.0, "epoch": 1.0, "step": 40}]
    assert "training step" in history.loss_curve()


def test_values_of_earlier_log_lines_are_not_of_the_step_of_a_later_one() -> None:
    history = MetricHistory()
    history((Metrics((("loss", "2"), ("step", "20")), ("loss", "step")),))
    history((Metrics((("loss", "2"), ("step", "25"), ("eval_loss", "1")), ("eval_loss", "step")),))
    assert history.entries == [{"loss": 2.0, "step": 20}, {"eval_loss": 1.0, "step": 25}]


def test_missed_values_are_filled_in_from_the_history_of_the_training() -> None:
    history = reported({"loss": "2", "step": "20"})
    logged = [{"loss": 5.0 - step / 10, "epoch": step / 40, "step": step} for step in (10, 20, 30, 40)]
    history((Logged((*logged, {"train_runtime": 3.0, "epoch": 1.0, "step": 40})),))
    assert sorted(entry["step"] for entry in history.entries if "loss" in entry) == [10, 20, 30, 40]
    assert history.entries[0] == {"loss": 2.0, "step": 20}
    assert history.entries[-1] == {"train_runtime": 3.0, "step": 40}
    history((Logged(tuple(logged)),))
    assert len(history.entries) == 5, "nothing comes twice"


def test_history_with_steps_replaces_counted_reports() -> None:
    history = reported({"loss": "2"}, {"loss": "1"})
    assert ">report<" in history.loss_curve()
    history((Logged(({"loss": 2.0, "step": 100}, {"loss": math.nan, "step": 200}, {"loss": 1.0, "step": 300})),))
    assert [entry["step"] for entry in history.entries] == [100, 300]
    assert ">training step<" in history.loss_curve()


def test_reports_without_a_step_are_counted() -> None:
    assert [entry["step"] for entry in reported({"loss": "2"}, {"loss": "nan"}, {"loss": "1"}).entries] == [1, 2]


def test_the_curve_is_drawn_from_them() -> None:
    assert "<svg" in reported({"loss": "2", "step": "1"}, {"loss": "1", "step": "2"}).loss_curve()
    assert reported({"accuracy": "1"}).loss_curve() == "<p>The training reported no loss.</p>"


@pytest.mark.medium
def test_a_long_training_is_thinned_out() -> None:
    history = reported(*({"loss": str(step), "step": str(step)} for step in range(1, 20_010)))
    assert 10_000 < len(history.entries) < 20_000
    assert history.entries[0]["step"] == 1
    assert history.entries[-1]["step"] == 20_009


def test_history_is_kept_in_the_folder_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    with kept_history(str(tmp_path), "runs/a") as history:
        history((Metrics((("loss", "2"), ("step", "5"))),))
    assert (run / "metrics.jsonl").read_text("utf-8") == '{"step": 5, "loss": 2.0}\n'


def test_history_of_a_training_that_failed_is_not_kept(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)

    def fail() -> None:
        with kept_history(str(tmp_path), "runs/a") as history:
            history((Metrics((("loss", "2"), ("step", "5"))),))
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    assert not list(run.iterdir())
