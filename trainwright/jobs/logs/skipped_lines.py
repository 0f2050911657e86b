"""Counts the lines of a log that are not shown, and keeps the last ones: nothing is left out without a word."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from trainwright.jobs.logs.container_log import NOT_KEPT
from trainwright.jobs.logs.log_excerpt import final_state, shortened
from trainwright.jobs.logs.log_options import LogLine


class SkippedLines:
    """Lines by their source; the last `count` of each are kept, shortened."""

    def __init__(self, count: int):
        self._count = count
        self._last: dict[str, deque[LogLine]] = {}
        self._numbers: Counter[str] = Counter()
        self._with_gaps: set[str] = set()

    def add(self, line: LogLine) -> None:
        """Add the next line of a source."""
        if line.text == NOT_KEPT:
            self._with_gaps.add(line.source)
            return
        self._numbers[line.source] += 1
        kept = line._replace(text=shortened(final_state(line.text)))
        self._last.setdefault(line.source, deque(maxlen=self._count)).append(kept)

    def lines(self) -> Iterator[LogLine]:
        """Yield how many lines of each source are not shown, and its last lines."""
        for source, last in self._last.items():
            if missing := self._numbers[source] - len(last):
                more = ", besides those that the node has not kept" if source in self._with_gaps else ""
                yield LogLine(source, f"... {missing} lines not shown{more}")
            yield from last
