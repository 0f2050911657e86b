"""The reporter in the training pod: the step of each figure, figures that are not finite, and the history at the end."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainwright.jobs.logs.training_log import is_history_line, parse_history
from trainwright.runtimes.report_progress import (
    CHUNK_CHARACTERS,
    MAX_ENTRIES,
    history_lines,
    install,
    refuse_no_steps,
    refuse_no_steps_left,
    take_logs,
)

NAN = math.nan


def taken(*logs: tuple[int, dict[str, Any]]) -> tuple[dict[str, Any], list[bool]]:
    metrics: dict[str, Any] = {}
    return metrics, [take_logs(metrics, entry, step) for step, entry in logs]


def test_each_kind_of_figure_has_its_step() -> None:
    training = {"loss": 1.5, "grad_norm": 2.0, "epoch": 0.5, "text": "no number"}
    metrics, _ = taken((20, training), (25, {"eval_loss": 1.4, "epoch": 0.6}), (29, {"train_runtime": 3.0, "epoch": 0.7}))
    assert metrics == {
        "loss": 1.5,
        "grad_norm": 2.0,
        "epoch": 0.5,
        "step": 20,
        "eval_loss": 1.4,
        "eval_step": 25,
        "train_runtime": 3.0,
    }


def test_figures_that_are_not_finite_are_counted_and_reported_at_once() -> None:
    metrics, urgent = taken(*((step, {"loss": NAN, "grad_norm": 1.0}) for step in (10, 20, 30, 40)))
    assert (metrics["loss_not_finite_since"], metrics["loss_not_finite_reports"]) == (10, 4)
    assert urgent == [True, True, True, False]
    take_logs(metrics, {"loss": 1.5}, 50)
    assert metrics == {"loss": 1.5, "grad_norm": 1.0, "step": 50}


def test_training_without_a_step_is_refused() -> None:
    with pytest.raises(SystemExit, match="no step was trained: no row is left to train on"):
        refuse_no_steps(0)
    refuse_no_steps(1)


def test_training_whose_checkpoint_is_at_its_end_is_refused() -> None:
    with pytest.raises(
        SystemExit, match="no step is left to train: the checkpoint is of step 6, and the training ends with step 6"
    ):
        refuse_no_steps_left(6, 6)
    refuse_no_steps_left(5, 6)
    refuse_no_steps_left(0, 0)


def test_history_survives_its_lines() -> None:
    history: list[dict[str, Any]] = [{"step": 10, "loss": 1.25, "note": "x"}, {"step": 20, "loss": NAN}, {"train_runtime": 3.0}]
    lines = history_lines(history)
    first, second = parse_history(["before", *lines, "after"])
    assert first == {"step": 10, "loss": 1.25}
    assert second["step"] == 20
    assert math.isnan(second["loss"])
    assert all(map(is_history_line, lines))
    assert history_lines([]) == []


def test_long_history_is_thinned_and_keeps_the_last_entry() -> None:
    history = [{"step": step, "loss": math.sin(step)} for step in range(1, 3 * MAX_ENTRIES + 1)]
    lines = history_lines(history)
    assert max(map(len, lines)) < CHUNK_CHARACTERS + 100
    entries = parse_history(lines)
    assert len(entries) == MAX_ENTRIES
    assert entries[-1]["step"] == 3 * MAX_ENTRIES
    assert parse_history(lines[:-1]) == (), "a part is missing"


def test_other_programs_are_left_alone(monkeypatch: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    install("my.program")
    install("trl.scripts.sft")
