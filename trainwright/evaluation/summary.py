"""Renders an evaluation result as Markdown, for the pages of Kubeflow Pipelines and Airflow."""

from __future__ import annotations

import math
from typing import Any

from trainwright.evaluation.figures import OF_TRAINING, loss_label, loss_name, stop_line
from trainwright.text.foreign_texts import code, escaped, escaped_advice, fenced
from trainwright.workspace.run_record import FINDINGS, finding_lines

_SAMPLE = (("prompt", "Prompt"), ("expected", "Expected"), ("before", "Before"), ("after", "After"))
_FACTS = (
    ("rows", "rows"),
    ("rows_digest", "rows digest"),
    ("checkpoint_uri", "checkpoint"),
    ("checkpoint_digest", "checkpoint digest"),
    ("dataset_digest", "dataset digest"),
)


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
