"""The final summary: the model before and after, the duration of each step, and the locations of the results."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from trainwright.evaluation.figures import loss_label, loss_of, relative_change, stop_line
from trainwright.workspace.run_record import FINDINGS, finding_lines


def show_summary(result: dict[str, Any], console: Console) -> None:
    """Print the result of a run, as returned by `collect_result`."""
    before, after = result["before"], result["after"]
    table = Table(title=f"Run {result['run']}", show_header=True, header_style="bold", title_justify="left")
    table.add_column("")
    table.add_column("before")
    table.add_column("after")
    change = relative_change(before["loss"], after["loss"])
    table.add_row(loss_label(result), f"{before['loss']:.3f}", f"{after['loss']:.3f}{f'  ({change})' if change else ''}")
    table.add_row("sample completion", _first_line(before["sample"]), _first_line(after["sample"]))
    if all(ends := [stop_line(result["samples"], when) for when in ("before", "after")]):
        table.add_row("samples", *ends)
    console.print(table)
    prompt = " ".join(line for line in result["prompt"].splitlines() if line and not line.startswith("###"))
    _line(console, "the sample's instruction", prompt)
    _line(console, "the expected answer", result["expected"])
    _line(console, "seconds", ", ".join(f"{step} {seconds:.1f}" for step, seconds in result["durations"].items()))
    _line(console, "checkpoint", result["checkpoint"])
    _line(console, "manifest", result["digest"])
    _line(console, "loss curve", result["loss_curve"])
    for finding in result["findings"]:
        _line(console, "dataset", finding)


def collect_result(
    run: str, evaluation: dict[str, Any], durations: dict[str, float], checkpoint: str, digest: str, loss_curve: str
) -> dict[str, Any]:
    """The content of the summary as plain data."""
    sample = evaluation["sample"]
    return {
        "run": run,
        "held_out": evaluation["held_out"],
        "before": {"loss": loss_of(evaluation["before"]), "sample": sample["before"].strip()},
        "after": {"loss": loss_of(evaluation["after"]), "sample": sample["after"].strip()},
        "prompt": sample["prompt"],
        "expected": str(sample.get("expected") or "").strip(),
        "rows": evaluation["rows"],
        "trained_rows": evaluation.get("trained_rows", 0),
        "samples": evaluation.get("samples", {}),
        "findings": finding_lines(evaluation.get(FINDINGS)),
        "durations": {step: round(seconds, 2) for step, seconds in durations.items()},
        "checkpoint": checkpoint,
        "digest": digest,
        "loss_curve": loss_curve,
    }


def _first_line(text: str) -> str:
    """The first line of a completion; an ellipsis marks that there are more."""
    first, *more = text.splitlines() or [""]
    return first + (" ..." if more else "")


def _line(console: Console, name: str, value: str) -> None:
    console.print(f"[dim]{name:>24}[/dim]  {value}", soft_wrap=True, highlight=False)
