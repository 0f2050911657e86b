"""Terminal output of a run: one line per step with its duration, the training progress, and the summary in the end.

The full output of the steps goes to a log file. The summary compares the model before and after, and lists the duration of each
step and the locations of the results.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from trainwright.evaluation.figures import loss_label, loss_of, relative_change, stop_line
from trainwright.pipeline_runs.local_inputs import State
from trainwright.pipeline_runs.local_lines import PrintedLines
from trainwright.pipeline_runs.local_values import Values
from trainwright.workspace.run_record import FINDINGS, finding_lines

_PROGRESS = re.compile(r"^(Queued|Starting|Running|Restarting|Suspended|Succeeded|Failed)\b(?: (\d+) %)?(.*)$")
_MARKS = {
    State.succeeded: ("✓", "green"),
    State.skipped: ("○", "yellow"),
    State.failed: ("✗", "red"),
    State.omitted: ("○", "yellow"),
}


class StepsView:
    """Observes a run; steps may run side by side. `durations` are seconds by step."""

    def __init__(self, log: Path, out: TextIO | None = None, usual_seconds: Mapping[str, int] | None = None):
        self._usual_seconds = usual_seconds or {}
        self.durations: dict[str, float] = {}
        self.nodes_started: float | None = None
        """Time (monotonic) at which the nodes of the training step were first running."""
        self.training_began: float | None = None
        """Time (monotonic) of the first progress report of the training program."""
        self._log = open(log, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  (closed with the view)
        self._lines = PrintedLines(self.note)
        self._out = out or sys.stdout
        self._console = Console(file=self._out)
        columns = (
            TextColumn("  {task.description:<20}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._bars: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._noted: dict[str, str] = {}

    @property
    def failure_log(self) -> str:
        """The last lines of the first step that failed; empty if none has."""
        return "\n".join(self._lines.failures[0].log) if self._lines.failures else ""

    def __enter__(self) -> StepsView:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._log.close()

    def note(self, line: str) -> None:
        """Write a line to the log only."""
        if not self._log.closed:  # the last lines of a run that is interrupted
            self._log.write(line + "\n")

    def begins(self, task: str) -> None:
        self._lines.begins(task)
        self._started[task] = time.monotonic()
        usual = f"usually {self._usual_seconds[task]} s" if task in self._usual_seconds else ""
        if self._console.is_terminal:
            self._bars[task] = self._bar.add_task(task, total=None, note=usual)
        else:
            self._say(f"  {task} ...{f' ({usual})' if usual else ''}")

    def prints(self, task: str, line: str) -> None:
        self._lines.prints(task, line)
        if (match := _PROGRESS.match(line.strip())) and task in self._started:
            self._progress(task, match[1], match[2], match[3].strip())

    def ends(self, task: str, state: State, outputs: Values, problem: str) -> None:
        self._lines.ends(task, state, outputs, problem)
        self.durations[task] = time.monotonic() - self._started.get(task, time.monotonic())
        if task in self._bars:
            self._bar.remove_task(self._bars.pop(task))
        mark, colour = _MARKS[state]
        self._console.print(f"  [{colour}]{mark}[/{colour}] {task:<20} {self.durations[task]:6.1f} s")

    def warns(self, text: str) -> None:
        self._lines.warns(text)

    def _progress(self, task: str, phase: str, percent: str | None, rest: str) -> None:
        if phase == "Running" and task == "train":
            self.nodes_started = self.nodes_started or time.monotonic()
            if percent is not None:
                self.training_began = self.training_began or time.monotonic()
        note = f"{phase} {percent + ' %' if percent else ''} {rest}".strip()
        if task in self._bars:
            self._bar.update(self._bars[task], note=note)
            if percent:
                self._bar.update(self._bars[task], total=100, completed=int(percent))
        elif note != self._noted.get(task):
            self._say(f"      {note}")
        self._noted[task] = note

    def _say(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


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
