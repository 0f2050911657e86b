"""What happens to a job that a person waits for: a progress bar in a terminal, lines elsewhere; what it prints goes out."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trainwright.jobs.logs.result_lines import is_result_line
from trainwright.jobs.state.progress_line import progress_line
from trainwright.jobs.wait.event_printer import EventPrinter, format_log_line
from trainwright.jobs.wait.job_events import JobEvents, LogOutput


class ProgressDisplay:
    """A context manager, called with what has happened."""

    def __init__(self, console: Console):
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._teller = EventPrinter(self._line)

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, happenings: JobEvents) -> None:
        for happening in happenings:
            if isinstance(happening, LogOutput) and not is_result_line(happening.line.text):
                print(format_log_line(happening.line), flush=True)
        self._teller(tuple(happening for happening in happenings if not isinstance(happening, LogOutput)))

    def _line(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif (progress := self._teller.progress) is not None and line == progress_line(progress):
            known = progress.percent is not None
            self._bar.update(self._task, description=line, total=100 if known else None, completed=progress.percent or 0)
        else:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
