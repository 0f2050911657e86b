"""Polls the log of a job, for processes that wait for thousands of jobs and cannot keep a connection open for each.

A poll costs one list of the job's pods and one request for each log; lines beyond its budget are returned by the next. How far a
log has been shown is noted on the TrainJob: a triggerer that takes over a deferred task knows only what the cluster says, and
continues there, without a gap.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

from trainwright.api import names
from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.objects import Obj, annotations_of, uid_of
from trainwright.api.times import is_moment
from trainwright.backoff import Backoff
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.container_log import ContainerLog
from trainwright.jobs.logs.follow_logs import GRACE_SECONDS
from trainwright.jobs.logs.log_options import LogLine, LogStreamOptions
from trainwright.jobs.logs.read_logs import (
    TOO_MANY,
    RecentLines,
    SkippedLines,
    has_started,
    last_lines,
    log_of,
    size_of,
    source_of,
)
from trainwright.jobs.state.pods import Denials, pods_of

_TRIES, _BACKOFF = 5, Backoff(1.0, 5.0)
"""For the rest of the log of a finished job, which no later poll would read."""
MAX_PODS = 16
"""Of more pods, those with the latest lines are noted; the logs of the others are shown from their beginning again."""


class PolledLogs:
    """`shown` is how far the logs of pods were shown before, see `shown_until`. Not thread-safe."""

    def __init__(self, cluster: Cluster, trainjob: Obj, options: LogStreamOptions, shown: Mapping[str, str] | None = None):
        self._cluster, self._trainjob, self._options = cluster, trainjob, options
        self.shown_until = dict(shown or {})
        """The time up to which every line of a pod has been returned, by its UID."""
        self._logs: dict[str, ContainerLog] = {}
        self._last: dict[str, str] = {}
        self.recent = RecentLines()
        self._shown = 0
        self._skipped = SkippedLines(options.budget.tail_lines)
        self._is_over = False
        self._denied, self._said = Denials(), ""

    @property
    def restarts(self) -> int:
        """Restarts of the containers whose logs are read."""
        return sum(log.restarts for log in self._logs.values())

    def poll(self) -> list[LogLine]:
        """Return the new lines, within the budget of one tick; none while the API server is unreachable.

        A log that may not be read is asked for again every minute.
        """
        return [] if self._is_over or "log" in self._denied else list(self._poll())

    def drain(self) -> Iterator[list[LogLine]]:
        """Yield the new lines of a finished job in portions of a tick, up to the total.

        Then follow how many lines are left out, and the last ones.
        """
        tick, portion, size = self._options.budget.tick, list[LogLine](), 0
        skipping_since, end = 0.0, list[LogLine]()
        for line in self._remaining():
            if self._is_over or not self._fits(size_of(line)):
                self._is_over, skipping_since = True, skipping_since or time.monotonic()
                self._skipped.add(line)
                if time.monotonic() > skipping_since + GRACE_SECONDS:  # more lines than can be counted in time
                    end = [TOO_MANY, *last_lines(self._cluster, self._trainjob, self._options.selector, self._options.budget)]
                    break
                continue
            portion.append(line)
            size, self._shown = size + size_of(line), self._shown + size_of(line)
            if tick is not None and size >= tick:
                yield portion
                portion, size = [], 0
        self._is_over = True
        yield [*portion, *(end or self._skipped.lines())]

    def _remaining(self) -> Iterator[LogLine]:
        """Yield the new lines of a finished job, also over lost connections."""
        for is_last in _BACKOFF.attempts(_TRIES):
            try:
                yield from self._new()
            except Forbidden as error:  # a retry would be refused, too
                yield from self._refused(error)
            except ApiError as error:
                if not is_last:  # each log goes on behind the last line that it has returned
                    continue
                yield LogLine("", f"(the rest of the log cannot be shown: {error.message})")
            return

    def _poll(self) -> Iterator[LogLine]:
        shown = 0
        try:
            for line in self._new():
                if not self._fits(size_of(line)):
                    self._is_over = True
                    self._skipped.add(line)
                    break
                shown, self._shown = shown + size_of(line), self._shown + size_of(line)
                yield line
                # the rest comes with the next polls
                if self._options.budget.tick is not None and shown >= self._options.budget.tick:
                    return
        except Forbidden as error:  # the permission may be granted while the job runs
            self._denied.note("log")
            yield from self._refused(error)
        except ApiError:  # retried at the next poll
            pass
        if self._is_over:
            yield LogLine("", f"({self._shown} bytes shown, the limit is reached; the last lines follow when the job ends)")

    def _refused(self, error: Forbidden) -> Iterator[LogLine]:
        if error.message != self._said:
            self._said = error.message
            yield LogLine("", f"(the log cannot be shown: {error.message})")

    def _fits(self, size: int) -> bool:
        total = self._options.budget.total
        return total is None or self._shown + size <= total

    def _new(self) -> Iterator[LogLine]:
        selector = self._options.selector
        pods = selector.of(pods_of(self._cluster, self._trainjob, selector.step))
        known, self._logs = self._logs, {}
        shown = self.shown_until = {uid_of(pod): self.shown_until[uid_of(pod)] for pod in pods if uid_of(pod) in self.shown_until}
        for pod in filter(has_started, pods):
            self._logs[uid_of(pod)] = log = known.get(uid_of(pod)) or log_of(
                self._cluster, pod, selector, shown.get(uid_of(pod), "")
            )
            try:
                for stamp, text in log.poll(pod):
                    if (last := self._last.get(uid_of(pod), stamp)) != stamp:  # a poll may end amid the lines of one moment
                        self.shown_until[uid_of(pod)] = last
                    self._last[uid_of(pod)] = stamp or last
                    self.recent.add(uid_of(pod), text)
                    yield LogLine(source_of(pod), text, stamp)
                if uid_of(pod) in self._last:
                    self.shown_until[uid_of(pod)] = self._last[uid_of(pod)]
            except (BadRequest, NotFound):  # not started yet, or deleted
                continue


def shown_until(trainjob: Obj) -> dict[str, str]:
    """Return the time of the last line that was shown of each pod, by its UID; what cannot be read counts as nothing. Pure."""
    try:
        found = json.loads(annotations_of(trainjob).get(names.LOG_SHOWN_ANNOTATION) or "{}")
    except (ValueError, RecursionError):  # anyone may write annotations
        return {}
    return {uid: time for uid, time in found.items() if is_moment(time)} if isinstance(found, dict) else {}


def shown_patch(trainjob: Obj, shown: Mapping[str, str]) -> Obj:
    """Return the patch that notes how far the logs of pods have been shown, of this job only. Pure."""
    latest = dict(sorted(shown.items(), key=lambda entry: entry[1])[-MAX_PODS:])
    annotations = {names.LOG_SHOWN_ANNOTATION: json.dumps(latest, separators=(",", ":"))}
    return {"metadata": {"uid": uid_of(trainjob), "annotations": annotations}}
