"""Which tasks of a run on this machine failed, and why, from what kfp's local runner prints: its result names the last one only.

The lines of tasks that run at the same time are mixed. Such a task has no message, since the cause could be another one's.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainwright.jobs.logs.launcher_noise import LAUNCHER_LINES, LOG_LINES, log_tail
from trainwright.pipeline_runs.task_report import FailedTask
from trainwright.text.one_line import one_line
from trainwright.text.terminal import plain

_BEGIN = re.compile(r"\d\d:\d\d:\d\d\.\d{3} - INFO - Executing task '(?P<task>.+)'")
_END = re.compile(r"\d\d:\d\d:\d\d\.\d{3} - [A-Z]+ - Task '(?P<task>.+)' finished with status (?P<status>[A-Z]+)")
_OF_RUNNER = re.compile(r"\d\d:\d\d:\d\d\.\d{3} - [A-Z]+ - |\[KFP Executor |-{20}")
_INDENT = "    "
"""Of the lines of a task."""
_TRACEBACK = "Traceback (most recent call last):"
_MAX_MESSAGE = 1000


@dataclass(frozen=True)
class LocalFailure:
    """A task that failed, with the last lines that it printed."""

    task: FailedTask
    log: tuple[str, ...]


@dataclass
class _Running:
    name: str
    is_alone: bool
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES + LAUNCHER_LINES))


class LocalFailures:
    """Reads the output of a run line by line; `found` are the tasks that failed, the first to fail first."""

    def __init__(self) -> None:
        self.found: list[LocalFailure] = []
        self._running: list[_Running] = []

    def read(self, line: str) -> None:
        """Take the next line of the output."""
        text = plain(line).rstrip()
        if begun := _BEGIN.fullmatch(text):
            for other in self._running:
                other.is_alone = False
            self._running.append(_Running(begun["task"], is_alone=not self._running))
        elif ended := _END.fullmatch(text):
            task = next((each for each in self._running if each.name == ended["task"]), None)
            if task is not None:
                self._running.remove(task)
                if ended["status"] == "FAILURE":
                    self.found.append(_failure(task))
        elif text.startswith(_INDENT) and not _OF_RUNNER.match(text.removeprefix(_INDENT)):
            for each in self._running:
                each.lines.append(text.removeprefix(_INDENT))


def cause_in(lines: Sequence[str]) -> str:
    """Return the error in the last lines of a program: what follows its last traceback, else its last line; empty without lines."""
    printed = [line for line in lines if line.strip()]
    for at in reversed(range(len(printed))):
        if printed[at].startswith(_TRACEBACK):
            said = next(
                (number for number in range(at + 1, len(printed)) if not printed[number].startswith(" ")), len(printed) - 1
            )
            return one_line(" ".join(printed[said:]))[:_MAX_MESSAGE]
    return one_line(printed[-1])[:_MAX_MESSAGE] if printed else ""


def _failure(task: _Running) -> LocalFailure:
    lines = list(task.lines)
    if lines[:1] == ["{"] and "}" in lines:  # the input of the executor
        lines = lines[lines.index("}") + 1 :]
    while lines and not lines[-1].strip():
        lines.pop()
    log = log_tail(lines, LOG_LINES)
    message = cause_in(lines) if task.is_alone else ""
    return LocalFailure(FailedTask(task.name, "FAILED", message), tuple(log))
