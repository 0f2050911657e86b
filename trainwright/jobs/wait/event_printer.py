"""Prints job events as lines of text, for the logs of Airflow tasks and KFP steps and for terminals."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainwright.api.phase import Phase
from trainwright.jobs.logs.log_excerpt import final_state
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.logs.training_log import is_history_line, is_result_line
from trainwright.jobs.state.progress import Progress, progress_line
from trainwright.jobs.state.usage import NO_USAGE
from trainwright.jobs.wait.job_events import JobEvents, LogOutput, PodFailed, Restarted, StartedFrom, Used, apply_event
from trainwright.text.foreign_texts import plain


class EventPrinter:
    """A callback for job events; calls `write` with each line of text, without a line end.

    With `progress_seconds`, lines that differ only in percent, time left and metrics have at least so many seconds between them; a
    line that was held back is written, as it is by then, with the next event. All else is written at once. `now` is the clock.
    """

    __slots__ = (
        "_last_line",
        "_next_progress",
        "_now",
        "_progress_seconds",
        "_shown",
        "_write",
        "progress",
        "started_from",
        "usage",
    )

    def __init__(self, write: Callable[[str], None], progress_seconds: float = 0.0, now: Callable[[], float] = time.monotonic):
        self._write, self._progress_seconds, self._now = write, progress_seconds, now
        self._next_progress = 0.0
        self._shown: tuple[Phase, str] | None = None
        self.progress: Progress | None = None
        """Current progress of the job, including what its log shows."""
        self.started_from = ""
        """What the training was last seen to start from."""
        self.usage = NO_USAGE
        """What the attempts that have ended used together."""
        self._last_line = ""

    def __call__(self, events: JobEvents) -> None:
        for event in events:
            self.progress = apply_event(self.progress, event)
            if isinstance(event, LogOutput) and is_shown(event.line):
                self._write(format_log_line(event.line))
            elif isinstance(event, Restarted):
                self._write(format_restart(event))
            elif isinstance(event, PodFailed):
                self._write(plain(event.text))
            elif isinstance(event, StartedFrom) and event.text not in ("", self.started_from):
                self.started_from = event.text
                self._write(f"Starts from {event.text}")
            elif isinstance(event, Used):
                self.usage += event.usage
                self._write(f"Used {event.usage}")
        if (
            self.progress is not None
            and (line := progress_line(self.progress)) != self._last_line
            and self._is_due(self.progress)
        ):
            self._last_line = line
            self._write(line)

    def _is_due(self, progress: Progress) -> bool:
        """Whether a line may be written now: one with another phase or reason to wait always."""
        if not self._progress_seconds:
            return True
        state, now = (progress.phase, progress.note), self._now()
        if state == self._shown and now < self._next_progress:
            return False
        self._shown, self._next_progress = state, now + self._progress_seconds
        return True


def is_shown(line: LogLine) -> bool:
    """Whether a log line is for people: encoded results and histories are not."""
    return not (is_result_line(line.text) or is_history_line(line.text))


def format_restart(restarted: Restarted) -> str:
    """Return a line such as `Restarting: restart 1 of 3`."""
    if restarted.container:
        return f"Restarting: {restarted.count} restart{'s' if restarted.count > 1 else ''} of containers so far"
    return f"Restarting: restart {restarted.count}" + (f" of {restarted.allowed}" if restarted.allowed else "")


def format_log_line(line: LogLine) -> str:
    """Return the text of a log line with its source; of a redrawn progress bar, only the last state."""
    text = final_state(line.text)
    return f"[{line.source}] {text}" if line.source else text
