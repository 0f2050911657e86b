"""Reads the logs of a TrainJob, of one rank or of all; and keeps what readers of growing logs need at their end.

Nothing is left out without a word: lines beyond a budget are counted, and the last ones kept. So are the last lines of each pod
while it is followed: the log is lost with an evicted or preempted pod.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.container_log import NOT_KEPT, ContainerLog
from trainwright.jobs.logs.log_excerpt import LOG_LINES, final_state, shortened
from trainwright.jobs.logs.log_options import Budget, LogLine, LogSelector
from trainwright.jobs.state.pods import container_of_step, index_of, pods_of, step_of

TOO_MANY = LogLine("", "... lines not shown: more than can be counted in time")
_ALL = LogSelector()
_MAX_PODS = 64
"""Of more pods, those whose logs have begun last are remembered."""


def read_logs(cluster: Cluster, trainjob: Obj, selector: LogSelector = _ALL, *, previous: bool = False) -> Iterator[LogLine]:
    """Yield the current lines; with `previous`, those of the container runs before the last restart.

    Raises NotFound if there is no such pod.
    """
    pods = pods_of(cluster, trainjob)
    found = selector.of(pods)
    if not found:
        steps = ", ".join(dict.fromkeys(map(step_of, pods))) or "none"
        rank = "" if selector.rank is None else f" and rank {selector.rank}"
        wanted = f"the step {selector.steps(pods)[0]!r}{rank}"
        raise NotFound(f"TrainJob {name_of(trainjob)} has no pods of {wanted} (steps with pods: {steps})")
    for pod in [pod for pod in found if has_started(pod)] or found:
        for stamp, text in log_of(cluster, pod, selector).read(previous=previous):
            yield LogLine(source_of(pod), text, stamp)


def source_of(pod: Obj) -> str:
    """Return `STEP-JOB-RANK`, the part of a pod's name between the job's name and the random suffix."""
    return f"{step_of(pod)}-{labels_of(pod).get(names.JOB_INDEX_LABEL, '0')}-{index_of(pod)}"


def last_lines(cluster: Cluster, trainjob: Obj, selector: LogSelector, budget: Budget) -> Iterator[LogLine]:
    """Yield the last lines of a log that was truncated, shortened."""
    try:
        for line in read_logs(cluster, trainjob, LogSelector(selector.step, selector.rank, tail=budget.tail_lines)):
            yield line._replace(text=shortened(final_state(line.text)))
    except ApiError as error:  # the job has its own outcome, whatever its log
        yield LogLine("", f"(the last lines cannot be read: {error.message})")


def log_of(
    cluster: Cluster, pod: Obj, selector: LogSelector, after: str = "", closed: threading.Event | None = None
) -> ContainerLog:
    """Return the log of the container that runs the step, from behind the line of the time `after` on."""
    closed, container = closed or threading.Event(), container_of_step(pod)
    return ContainerLog(cluster, pod, container, selector.since, selector.tail, closed, after, is_exact=selector.is_exact)


def size_of(line: LogLine) -> int:
    """Return the size of a line in bytes, including its line end."""
    return len(line.text.encode("utf-8", "surrogateescape")) + 1


def has_started(pod: Obj) -> bool:
    """Whether a pod has started, so that it can have a log."""
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


class RecentLines:
    """The last lines by the UID of the pod. Thread-safe."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}
        self._lock = threading.Lock()

    def add(self, uid: str, text: str) -> None:
        """Add the next line of a pod."""
        line = shortened(final_state(text))
        with self._lock:
            if uid not in self._lines:
                for oldest in list(self._lines)[: len(self._lines) + 1 - _MAX_PODS]:
                    del self._lines[oldest]
                self._lines[uid] = deque(maxlen=2 * LOG_LINES)
            self._lines[uid].append(line)

    def lines(self) -> dict[str, list[str]]:
        """Return the last lines of each pod."""
        with self._lock:
            return {uid: list(lines) for uid, lines in self._lines.items()}


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
