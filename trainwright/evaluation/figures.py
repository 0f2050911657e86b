"""The names of the figures of an evaluation: those of training rows are called so, and are never compared with held-out ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.text.text_input import is_number

TRAINED_SHARE = 0.05
"""Of the held-out rows: from this on, those that are trained on, too, make a figure worthless."""
OF_TRAINING = "training_"
OF_ROWS = ("loss", "perplexity", "preference_accuracy")
HELD_OUT_TASK, TRAINING_TASK = "held_out", "training_rows"
"""The task that asks for the completions of rows, by what the rows are."""


def named_by_rows(figures: Mapping[str, float], *, held_out: bool) -> dict[str, float]:
    """Return the figures of rows under the names that say which rows they are of: `loss` or `training_loss`."""
    return {name if held_out else f"{OF_TRAINING}{name}": value for name, value in figures.items()}


def task_name(task: str, *, held_out: bool) -> str:
    """Return the name of a task's figures."""
    return TRAINING_TASK if task == HELD_OUT_TASK and not held_out else task


def loss_name(figures: Mapping[str, Any]) -> str:
    """Return the name of the loss among the figures of a model."""
    return "loss" if "loss" in figures else f"{OF_TRAINING}loss"


def loss_of(figures: Mapping[str, Any]) -> float:
    """Return the loss among the figures of a model, of held-out or of training rows. Raises KeyError."""
    return float(figures[loss_name(figures)])


def relative_change(before: float, after: float, decimals: int = 0) -> str:
    """Return by how much a figure has changed, as `-32 %`; empty if it was 0, of which nothing is a percentage."""
    return f"{(after - before) / before * 100:+.{decimals}f} %" if before else ""


def is_of_rows(metric: str) -> bool:
    """Whether a figure depends on which rows were evaluated, not only on a public task."""
    return metric.removeprefix(OF_TRAINING) in OF_ROWS or metric.partition("/")[0] in (
        HELD_OUT_TASK,
        TRAINING_TASK,
    )


def trained_mark(evaluation: Mapping[str, Any]) -> str:
    """Return how many of the held-out rows are trained on, too, as `20 of 20 are also trained on`; empty for less than 5 %.

    evaluation: the result of the program, or its figures; one without `rows` and `trained_rows` has no mark.
    """
    rows, trained = _number(evaluation.get("rows")), _number(evaluation.get("trained_rows"))
    if trained <= 0 or trained < TRAINED_SHARE * rows:
        return ""
    return f"{trained:,} of {rows:,} are also trained on"


def loss_label(evaluation: Mapping[str, Any]) -> str:
    """Return what the loss of an evaluation is of, with the mark of held-out rows that are trained on."""
    if not evaluation.get("held_out"):
        return "training loss"
    mark = trained_mark(evaluation)
    return f"held-out loss ({mark.replace(' are', ' rows are')})" if mark else "held-out loss"


def stop_line(samples: Any, when: str) -> str:
    """Return how many samples of a model ended, and their mean length, as `7 of 8 ended (22 tokens each)`; empty if unknown."""
    found, count = (samples.get(when), _number(samples.get("count"))) if isinstance(samples, dict) else (None, 0)
    if not isinstance(found, dict) or count < 1:
        return ""
    each = round(_number(found.get("tokens")) / count)
    return f"{_number(found.get('ended')):,} of {count:,} ended ({each:,} {'token' if each == 1 else 'tokens'} each)"


def _number(value: Any) -> float:
    return value if is_number(value) else 0
