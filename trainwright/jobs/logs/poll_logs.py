"""Polls the log of a job, for processes that wait for thousands of jobs and cannot keep a connection open for each.

A poll costs one list of the job's pods and one request for each log; lines beyond its budget are returned by the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.logs.container_log import ContainerLog
from trainwright.jobs.logs.follow_logs import has_started, last_lines, log_of, size_of, source_of
from trainwright.jobs.logs.log_line import LogLine
from trainwright.jobs.logs.stream_logs import LogStreamOptions
from trainwright.jobs.state.denials import Denials
from trainwright.jobs.state.pods import pods_of


class PolledLogs:
    """`shown` is how far the logs of pods were shown before, see `shown_until`. Not thread-safe."""

    def __init__(self, cluster: Cluster, trainjob: Obj, options: LogStreamOptions, shown: Mapping[str, str] | None = None):
        self._cluster, self._trainjob, self._options = cluster, trainjob, options
        self.shown_until = dict(shown or {})
        """The time up to which every line of a pod has been returned, by its UID."""
        self._logs: dict[str, ContainerLog] = {}
        self._last: dict[str, str] = {}
        self._shown = 0
        self._is_truncated = self._is_over = False
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

    def drain(self) -> list[LogLine]:
        """Return the new lines of a finished job and, if they exceed the budget, its last lines."""
        lines = [] if self._is_over else list(self._poll())
        if self._is_over or self._is_truncated:
            lines.append(LogLine("", "(the log is truncated; its last lines follow)"))
            lines.extend(last_lines(self._cluster, self._trainjob, self._options.selector, self._options.budget))
        self._is_over = True
        return lines

    def _poll(self) -> Iterator[LogLine]:
        self._is_truncated, shown = False, 0
        try:
            for line in self._new():
                shown += size_of(line)
                yield line
                if self._exceeds_budget(shown):
                    self._is_truncated = True
                    break
        except Forbidden as error:
            self._denied.note("log")
            if error.message != self._said:
                self._said = error.message
                yield LogLine("", f"(the log cannot be shown: {error.message})")
            return
        except ApiError:  # retried at the next poll
            pass
        self._shown += shown
        if self._options.budget.total is not None and self._shown >= self._options.budget.total:
            self._is_over = True
            yield LogLine("", f"({self._shown} bytes shown, the limit is reached; the last lines follow when the job ends)")

    def _exceeds_budget(self, shown: int) -> bool:
        budget = self._options.budget
        is_total_exceeded = budget.total is not None and self._shown + shown >= budget.total
        return is_total_exceeded or (budget.tick is not None and shown >= budget.tick)

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
                    yield LogLine(source_of(pod), text, stamp)
                if uid_of(pod) in self._last:
                    self.shown_until[uid_of(pod)] = self._last[uid_of(pod)]
            except (BadRequest, NotFound):  # not started yet, or deleted
                continue
