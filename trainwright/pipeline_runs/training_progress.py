"""Shows the progress of a run: new states of it and its tasks, and the newest line of progress in the log of each training."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.objects import Obj
from trainwright.jobs.state.progress import is_progress_line
from trainwright.pipeline_runs.runs import FINAL_STATES, SUCCEEDED, state_of
from trainwright.pipeline_runs.step_logs import StepLogs
from trainwright.pipeline_runs.task_nodes import Task, tasks_of

_RUNNING = "RUNNING"
_MOST_LAST_LINES = 3
"""Lines of progress that are shown of a training whose log was not read before its end."""


class TrainingProgress:
    """Called with the run each time it is seen; returns whether a state is new.

    Calls `show` with a task's name, empty for the run itself, and its new state or line of progress. `groups` are names of what
    consists of tasks in the pipeline; they are not shown.
    """

    def __init__(self, logs: StepLogs, groups: frozenset[str], show: Callable[[str, str], None]):
        self._logs, self._groups, self._show = logs, groups, show
        self._states: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def __call__(self, run: Obj) -> bool:
        tasks = tasks_of(self._logs.with_pods(run), self._groups)
        current = {"": state_of(run), **{task.name: task.state for task in tasks}}
        changed = [name for name, state in current.items() if self._states.get(name) != state]
        has_ended = current[""] in FINAL_STATES
        for task in tasks:
            if task.name in changed and task.state == SUCCEEDED and task.name not in self._lines:
                self._show_progress(task, _MOST_LAST_LINES)
        for name in sorted(changed, key=lambda name: has_ended and not name):  # the end of the run is the last
            self._show(name, current[name])
        self._states |= current
        for task in tasks if not has_ended else ():
            if task.state == _RUNNING:
                self._show_progress(task, 1)
        return bool(changed)

    def _show_progress(self, task: Task, most: int) -> None:
        """Show the last lines of progress in the log of a task, unless the newest was shown before."""
        lines = [line for line in self._logs.last_lines(task.pod) if is_progress_line(line)] if task.pod else []
        if lines and lines[-1] != self._lines.get(task.name):
            self._lines[task.name] = lines[-1]
            for line in lines[-most:]:
                self._show(task.name, line)
