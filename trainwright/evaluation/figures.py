"""The figures of an evaluation: their names, by the rows that they are of, and how a result is shown as Markdown.

Figures of training rows are called so, and are never compared with held-out ones. The pages of Kubeflow Pipelines and Airflow show
the Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainwright.text.foreign_texts import code, escaped, escaped_advice, fenced
from trainwright.text.text_input import is_number
from trainwright.workspace.run_record import FINDINGS, finding_lines

TRAINED_SHARE = 0.05
"""Of the held-out rows: from this on, those that are trained on, too, make a figure worthless."""
OF_TRAINING = "training_"
OF_ROWS = ("loss", "perplexity", "preference_accuracy")
HELD_OUT_TASK, TRAINING_TASK = "held_out", "training_rows"
"""The task that asks for the completions of rows, by what the rows are."""
_SAMPLE = (("prompt", "Prompt"), ("expected", "Expected"), ("before", "Before"), ("after", "After"))
_FACTS = (
    ("rows", "rows"),
    ("rows_digest", "rows digest"),
    ("checkpoint_uri", "checkpoint"),
    ("checkpoint_digest", "checkpoint digest"),
    ("dataset_digest", "dataset digest"),
)


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


def markdown_summary(result: dict[str, Any]) -> str:
    """Return a heading, a table of losses and identifiers, and the sample. Missing parts are omitted.

    result: from the evaluation program (`before`, `after`, `sample`, `rows`, `held_out`), with `run`, `checkpoint_uri`,
    `checkpoint_digest`, `dataset_digest` and `data_findings` if known.
    """
    run = result.get("run")
    blocks = [f"## Run {escaped(str(run))}" if run else "## Evaluation"]
    losses = _losses(result)
    if losses:
        blocks.append("\n".join(losses))
    if findings := [f"- {escaped_advice(line)}" for line in finding_lines(result.get(FINDINGS))]:
        blocks += ["**Dataset**", "\n".join(findings)]
    facts = [f"| {name} | {code(str(result[key]))} |" for key, name in _FACTS if result.get(key) not in (None, "")]
    if facts:
        blocks.append("\n".join(["| | |", "|---|---|", *facts]))
    sample = result.get("sample")
    if isinstance(sample, dict):
        blocks += [f"**{name}**\n\n{fenced(str(sample[key]))}" for key, name in _SAMPLE if sample.get(key) is not None]
    return "\n\n".join(blocks) + "\n"


def _losses(result: dict[str, Any]) -> list[str]:
    before, after = _measured(result, "before"), _measured(result, "after")
    if not before and not after:
        return []
    loss = loss_name(after or before)
    perplexity = loss.replace("loss", "perplexity")
    of_training = loss.startswith(OF_TRAINING)
    name = "training loss" if of_training else loss_label({**result, "held_out": True})
    if result.get("loss_of"):  # of answers that are compared; otherwise the cross entropy of the tokens
        name += f" ({escaped(str(result['loss_of']))})"
    rows = [f"| {name} | {_shown(before, loss)} | {_shown(after, loss)} | {_change(before.get(loss), after.get(loss))} |"]
    if perplexity in before or perplexity in after:
        name = "training perplexity" if of_training else "perplexity"
        rows.append(f"| {name} | {_shown(before, perplexity)} | {_shown(after, perplexity)} | |")
    tasks = [name for name in after if name not in (loss, perplexity) and isinstance(after[name], int | float)]
    if any(ends := [stop_line(result.get("samples"), when) for when in ("before", "after")]):
        rows.append(f"| samples | {' | '.join(each or 'n/a' for each in ends)} | |")
    rows += [f"| {escaped(name)} | {_shown(before, name)} | {_shown(after, name)} | |" for name in tasks]
    return ["| | before | after | change |", "|---|---:|---:|---:|", *rows]


def _measured(result: dict[str, Any], when: str) -> dict[str, Any]:
    value = result.get(when)
    return value if isinstance(value, dict) else {}


def _shown(measured: dict[str, Any], key: str) -> str:
    value = measured.get(key)
    return f"{value:.4g}" if isinstance(value, int | float) else "n/a"


def _change(old: Any, new: Any) -> str:
    if not isinstance(old, int | float) or not isinstance(new, int | float) or not old or not math.isfinite(new / old):
        return "n/a"
    return f"{(new - old) / old * 100:+.1f} %"
