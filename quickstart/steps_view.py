"""Terminal output for a running pipeline: one line per step with its duration, and the training progress.

The full output of the steps goes to a log file.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from trainwright.pipeline_runs.local_inputs import State
from trainwright.pipeline_runs.local_lines import PrintedLines
from trainwright.pipeline_runs.local_values import Values

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
