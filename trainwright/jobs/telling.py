"""The stream of happenings as lines of text, for logs that have no progress bar: of a task, of a pipeline step, of a terminal."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.jobs.happenings import Happenings, Printed, Restarted, after
from trainwright.jobs.log_line import LogLine
from trainwright.jobs.progress import Progress
from trainwright.jobs.progress_line import progress_line
from trainwright.jobs.result_lines import is_result_line


class Teller:
    """Called with what happened since the last look; `say` is called with each line, which has no line end."""

    __slots__ = ("_said", "_say", "progress")

    def __init__(self, say: Callable[[str], None]):
        self._say = say
        self.progress: Progress | None = None
        """Where the job stands after all of that, what its log told included."""
        self._said = ""

    def __call__(self, happenings: Happenings) -> None:
        for happening in happenings:
            self.progress = after(self.progress, happening)
            if isinstance(happening, Printed) and not is_result_line(happening.line.text):
                self._say(shown_line(happening.line))
            elif isinstance(happening, Restarted):
                self._say(restarted_line(happening))
        if self.progress is not None and (line := progress_line(self.progress)) != self._said:
            self._said = line
            self._say(line)


def restarted_line(restarted: Restarted) -> str:
    """For instance `Restarting: restart 1 of 3`."""
    if restarted.container:
        return f"Restarting: {restarted.count} restarts of containers so far"
    return f"Restarting: restart {restarted.count}" + (f" of {restarted.allowed}" if restarted.allowed else "")


def shown_line(line: LogLine) -> str:
    """With whose it is; of a bar that was drawn over itself only what stands there in the end."""
    text = next((state for state in reversed(line.text.split("\r")) if state.strip()), "")
    return f"[{line.source}] {text}" if line.source else text
