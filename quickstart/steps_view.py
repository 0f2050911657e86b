"""Terminal output for a running pipeline: one line per step with its duration, and the training progress.

The full output of the orchestrator goes to a log file; this view shows the steps parsed from it.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROGRESS = re.compile(r"^(Queued|Starting|Running|Restarting|Suspended|Succeeded|Failed)\b(?: (\d+) %)?(.*)$")


@dataclass(frozen=True)
class Line:
    """A parsed line of an orchestrator's output: a step begins, a step ends, or other output (`text`)."""

    begins: str = ""
    ends: str = ""
    succeeded: bool = False
    skipped: bool = False
    text: str = ""


class StepsView(io.TextIOBase):
    """Replaces standard output while a pipeline runs; `durations` are seconds by step."""

    def __init__(
        self, log: Path, read: Callable[[str], Line], out: TextIO | None = None, usual_seconds: Mapping[str, int] | None = None
    ):
        self._read, self._usual_seconds = read, usual_seconds or {}
        self.durations: dict[str, float] = {}
        self.started: dict[str, float] = {}
        """Time (monotonic) at which each step began."""
        self.nodes_started: float | None = None
        """Time (monotonic) at which the nodes of the training step were first running."""
        self.training_began: float | None = None
        """Time (monotonic) of the first progress report of the training program."""
        self._log = open(log, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  (closed with the view)
        self._out = out or sys.stdout
        self._console = Console(file=self._out)
        columns = (
            TextColumn("  {task.description:<20}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task: int | None = None
        self._step = ""
        self._pending = ""
        self._noted = ""

    def __enter__(self) -> StepsView:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._log.close()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        self._pending += text
        *lines, self._pending = self._pending.split("\n")
        for line in lines:
            self._line(_COLOUR.sub("", line).rstrip())
        return len(text)

    def flush(self) -> None:
        """Does nothing: each line is shown when it is complete."""

    def _line(self, line: str) -> None:
        if self._log.closed:
            return
        self._log.write(line + "\n")
        seen = self._read(line)
        if seen.begins:
            self._start(seen.begins)
        elif seen.ends:
            self._end(seen)
        elif (match := _PROGRESS.match(seen.text)) and self._step:
            self._progress(match[1], match[2], match[3].strip())

    def _start(self, step: str) -> None:
        self._step, self._noted = step, ""
        self.started[step] = time.monotonic()
        usual = f"usually {self._usual_seconds[step]} s" if step in self._usual_seconds else ""
        if self._console.is_terminal:
            self._task = self._bar.add_task(step, total=None, note=usual)
        else:
            self._say(f"  {step} ...{f' ({usual})' if usual else ''}")

    def _end(self, seen: Line) -> None:
        step = seen.ends
        self.durations[step] = time.monotonic() - self.started.get(step, time.monotonic())
        if self._task is not None:
            self._bar.remove_task(self._task)  # type: ignore[arg-type]
            self._task = None
        mark, colour = ("○", "yellow") if seen.skipped else ("✓", "green") if seen.succeeded else ("✗", "red")
        self._console.print(f"  [{colour}]{mark}[/{colour}] {step:<20} {self.durations[step]:6.1f} s")

    def _progress(self, phase: str, percent: str | None, rest: str) -> None:
        if phase == "Running" and self._step == "train":
            self.nodes_started = self.nodes_started or time.monotonic()
            if percent is not None:
                self.training_began = self.training_began or time.monotonic()
        note = f"{phase} {percent + ' %' if percent else ''} {rest}".strip()
        if self._task is not None:
            self._bar.update(self._task, note=note, **({"total": 100, "completed": int(percent)} if percent else {}))  # type: ignore[arg-type]
        elif note != self._noted:
            self._say(f"      {note}")
        self._noted = note

    def _say(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()
