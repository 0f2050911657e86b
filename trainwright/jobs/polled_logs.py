"""The log of a job that nobody follows, looked at now and then: for those who wait for thousands of jobs and hold no connection each.

A look costs a list of the job's pods and a request for each log; what it has no place for comes with the next.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import ApiError, BadRequest, Forbidden, NotFound
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.live_logs import Live
from trainwright.jobs.log_line import LogLine
from trainwright.jobs.log_reader import ContainerLog
from trainwright.jobs.logs import has_started, last_lines, log_of, size_of, source_of
from trainwright.jobs.pods import pods_of


class PolledLogs:
    """`since` is RFC 3339: lines from there on. Not for several threads at once."""

    def __init__(self, cluster: Cluster, trainjob: Obj, live: Live, since: str = ""):
        self._cluster, self._trainjob, self._live, self._since = cluster, trainjob, live, since
        self._logs: dict[str, ContainerLog] = {}
        self._shown = 0
        self._is_cut, self._is_over, self._is_refused = False, False, False

    @property
    def restarts(self) -> int:
        """Of the containers whose logs are read."""
        return sum(log.restarts for log in self._logs.values())

    def look(self) -> list[LogLine]:
        """The lines that are new, in the bytes of one tick; none while the cluster does not answer."""
        return [] if self._is_over else list(self._look())

    def rest(self) -> list[LogLine]:
        """The job has ended: what is new, and where that is too much, the last lines."""
        lines = self.look()
        if (self._is_over and not self._is_refused) or self._is_cut:
            lines.append(LogLine("", "(not all of its log is shown; the last lines are)"))
            lines.extend(last_lines(self._cluster, self._trainjob, self._live.wanted))
        self._is_over = True
        return lines

    def _look(self) -> Iterator[LogLine]:
        self._is_cut, shown = False, 0
        try:
            for line in self._new():
                shown += size_of(line)
                yield line
                if self._is_too_much(shown):
                    self._is_cut = True
                    break
        except Forbidden as error:
            self._is_over = self._is_refused = True
            yield LogLine("", f"(its log is not shown: {error.message})")
            return
        except ApiError:  # read at the next look
            pass
        self._shown += shown
        if self._live.budget.total is not None and self._shown >= self._live.budget.total:
            self._is_over = True
            yield LogLine("", f"({self._shown} bytes shown, which is the limit; the last lines follow at the end)")

    def _is_too_much(self, shown: int) -> bool:
        budget = self._live.budget
        in_all = budget.total is not None and self._shown + shown >= budget.total
        return in_all or (budget.tick is not None and shown >= budget.tick)

    def _new(self) -> Iterator[LogLine]:
        wanted = self._live.wanted
        pods = wanted.of(pods_of(self._cluster, self._trainjob, wanted.step))
        known, self._logs = self._logs, {}
        for pod in filter(has_started, pods):
            self._logs[uid_of(pod)] = log = known.get(uid_of(pod)) or log_of(self._cluster, pod, wanted, self._since)
            try:
                for stamp, text in log.look(pod):
                    yield LogLine(source_of(pod), text, stamp)
            except (BadRequest, NotFound):  # it has not started, or is gone
                continue
