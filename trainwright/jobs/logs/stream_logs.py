"""Streams the log of a job while another thread waits for it, within a byte budget, up to the last line.

Costs one connection for each log, and a list of the job's pods whenever its status changes or no log is being read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.logs.follow_logs import LogFollower
from trainwright.jobs.logs.log_options import LogLine, LogStreamOptions
from trainwright.jobs.state.denials import ASKED_AGAIN_SECONDS
from trainwright.jobs.state.pods import pods_of

LOG_POLL_SECONDS = 0.5
"""Interval at which a live log is shown."""
_IDLE_POLL_SECONDS, _READING_POLL_SECONDS = 5.0, 30.0
"""Seconds between lists of the pods while no log is being read, and while one is."""


class LiveLogs:
    """A context manager that reads logs in the background; without `options` it does nothing.

    `watched` is the cluster with pods that a watch knows. Those of a job that has ended are listed: the watch may be late.
    """

    def __init__(self, cluster: Cluster, trainjob: Obj, options: LogStreamOptions | None, watched: Cluster | None = None):
        self.selector = options.selector if options else None
        self._cluster, self._watched, self._trainjob = cluster, watched or cluster, trainjob
        self._follower = LogFollower(cluster, trainjob, options.selector, options.budget) if options else None
        self._changed = threading.Event()
        self._steps: object = None
        self._forbidden_message = self._reported = ""

    def __enter__(self) -> LiveLogs:
        if self._follower is not None:
            threading.Thread(target=self._find_pods_loop, args=(self._follower,), name="live-logs", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._follower is not None:
            self._follower.closed.set()
            self._changed.set()

    @property
    def restarts(self) -> int:
        """Container restarts seen while reading logs; a fast restart is not visible in the job's status."""
        return self._follower.restarts if self._follower is not None else 0

    @property
    def recent_lines(self) -> dict[str, list[str]]:
        """The last lines of each pod, by its UID."""
        return self._follower.recent.lines() if self._follower is not None else {}

    def observe_status(self, trainjob: Obj) -> None:
        """Look for new pods if the status of the job's steps has changed."""
        steps = (trainjob.get("status") or {}).get("jobsStatus")
        if steps != self._steps:
            self._steps = steps
            self._changed.set()

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines printed since the last call, within the budget of one tick."""
        if self._follower is not None:
            yield from self._follower.buffered_lines()
            if self._forbidden_message not in ("", self._reported):
                self._reported = self._forbidden_message
                yield LogLine("", f"(the log cannot be shown: {self._reported})")

    def remaining_lines(self) -> Iterator[LogLine]:
        """Yield the remaining lines of a finished job, up to the total budget."""
        follower = self._follower
        if follower is None:
            return
        try:
            self._find_pods(follower, RetryingCluster(self._cluster), is_last=True)
        except ApiError as error:
            yield LogLine("", f"(the rest of the log cannot be shown: {error.message})")
        yield from follower.rest()
        yield from self.lines()

    def _find_pods_loop(self, follower: LogFollower) -> None:
        while not follower.closed.is_set():
            self._changed.clear()
            with suppress(ApiError):  # retried at the next poll
                self._find_pods(follower, self._watched)
            if self._forbidden_message:
                follower.closed.wait(ASKED_AGAIN_SECONDS)
            else:
                self._changed.wait(_READING_POLL_SECONDS if follower.is_reading else _IDLE_POLL_SECONDS)

    def _find_pods(self, follower: LogFollower, cluster: Cluster, *, is_last: bool = False) -> None:
        assert self.selector is not None
        try:
            follower.start_readers(pods_of(cluster, self._trainjob, self.selector.step), is_last=is_last)
            self._forbidden_message = ""
        except Forbidden as error:
            self._forbidden_message = error.message
