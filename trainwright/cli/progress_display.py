"""Displays the events of an awaited job: a progress bar in a terminal, else lines. Logs are printed on standard output."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trainwright.cli.output import log_text
from trainwright.jobs.state.progress import progress_line
from trainwright.jobs.wait.job_events import JobEvents, LogOutput
from trainwright.jobs.wait.waiting import EventPrinter, format_log_line, is_shown


class ProgressDisplay:
    """A context manager and a callback for job events."""

    def __init__(self, console: Console):
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._event_printer = EventPrinter(self._line)

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def __call__(self, events: JobEvents) -> None:
        for event in events:
            if isinstance(event, LogOutput) and is_shown(event.line):
                print(log_text(format_log_line(event.line)), flush=True)
        self._event_printer(tuple(event for event in events if not isinstance(event, LogOutput)))

    def _line(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif (progress := self._event_printer.progress) is not None and line == progress_line(progress):
            known = progress.percent is not None
            self._bar.update(self._task, description=line, total=100 if known else None, completed=progress.percent or 0)
        else:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
