"""Shows how far the trainings of a run are: the newest line of progress in the log of each step that runs."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.objects import Obj
from trainwright.jobs.state.progress_line import is_progress_line
from trainwright.pipeline_runs.step_logs import StepLogs
from trainwright.pipeline_runs.task_nodes import tasks_of

_RUNNING = "RUNNING"


class TrainingProgress:
    """Called with the run each time it is seen; calls `on_line` with a task's name and its line of progress when that has changed."""

    def __init__(self, logs: StepLogs, groups: frozenset[str], on_line: Callable[[str, str], None]):
        self._logs, self._groups, self._on_line = logs, groups, on_line
        self._shown: dict[str, str] = {}

    def __call__(self, run: Obj) -> None:
        for task in tasks_of(run, self._groups):
            if task.state == _RUNNING and task.pod:
                lines = (line for line in reversed(self._logs.last_lines(task.pod)) if is_progress_line(line))
                newest = next(lines, "")
                if newest and newest != self._shown.get(task.name):
                    self._shown[task.name] = newest
                    self._on_line(task.name, newest)
