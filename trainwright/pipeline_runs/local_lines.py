"""What a run on this machine prints, and which of its tasks failed, with their last lines."""

from __future__ import annotations

import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwright.jobs.logs.log_excerpt import LAUNCHER_LINES, LOG_LINES, log_tail
from trainwright.pipeline_runs.local_inputs import State
from trainwright.pipeline_runs.local_values import Values, as_text
from trainwright.pipeline_runs.task_nodes import FailedTask
from trainwright.text.foreign_texts import one_line, plain

_OF_EXECUTOR = re.compile(r"\[KFP Executor \d{4}-\d\d-\d\d \S+ [A-Z]+\]: (?P<dump>Got executor_input:)?")
_TRACEBACK = "Traceback (most recent call last):"
_MAX_MESSAGE, _MAX_OUTPUT = 1000, 300
_WORDS = {State.succeeded: "SUCCESS", State.failed: "FAILURE", State.skipped: "SKIPPED", State.omitted: "OMITTED"}
"""As kfp.local says it."""


@dataclass(frozen=True)
class LocalFailure:
    """A task that failed, with the last lines that it printed."""

    task: FailedTask
    log: tuple[str, ...]


def _print(line: str) -> None:
    print(line, flush=True)


class PrintedLines:
    """Observes a run: prints what its tasks do and print, each line with its task. `failures` are in the order of the failures.

    `say` takes one line at a time.
    """

    def __init__(self, say: Callable[[str], object] = _print) -> None:
        self._say_line = say
        self.failures: list[LocalFailure] = []
        self._lines: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=LOG_LINES + LAUNCHER_LINES))
        self._in_dump: set[str] = set()
        self._lock = threading.Lock()

    def begins(self, task: str) -> None:
        self._say(f"Executing task {task!r}")

    def prints(self, task: str, line: str) -> None:
        """Print a line of a task, unless it is one of kfp's executor, which repeats the inputs."""
        text = plain(line)
        if found := _OF_EXECUTOR.match(text):
            if found["dump"]:
                self._in_dump.add(task)
            return
        if task in self._in_dump:
            if text == "}":
                self._in_dump.discard(task)
            return
        self._lines[task].append(text)
        self._say(f"[{task}] {text}")

    def ends(self, task: str, state: State, outputs: Values, problem: str) -> None:
        lines = list(self._lines.pop(task, ()))
        if problem:
            self._say(f"[{task}] {problem}")
            lines.append(problem)
        made = (f"    {name}: {one_line(as_text(shown(value)))[:_MAX_OUTPUT]}" for name, value in outputs.items())
        self._say(f"Task {task!r} finished with status {_WORDS[state]}", *made)
        if state is State.failed:
            while lines and not lines[-1].strip():
                lines.pop()
            failed = FailedTask(task, "FAILED", problem or cause_in(lines))
            with self._lock:
                self.failures.append(LocalFailure(failed, tuple(log_tail(lines, LOG_LINES))))

    def warns(self, text: str) -> None:
        self._say(f"warning: {text}")

    def _say(self, *lines: str) -> None:
        with self._lock:
            for line in lines:
                self._say_line(line)


def shown(value: object) -> object:
    """Return an output as JSON: a parameter as it is, an artifact as its URI."""
    if isinstance(value, list) and value and all(isinstance(each, dict) and {"uri", "type"} <= each.keys() for each in value):
        addresses = [each["uri"] for each in value]
        return addresses[0] if len(addresses) == 1 else addresses
    return value


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
