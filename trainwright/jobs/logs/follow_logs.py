"""Follows the logs of a TrainJob, of one rank or of all, within a byte budget: for a person until the job ends, and live while
another thread waits for the job.

Costs one connection for each log, and a list of the job's pods whenever its status changes or no log is being read.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from trainwright.api.errors import ApiError, Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.logs import container_log
from trainwright.jobs.logs.container_log import ContainerLog
from trainwright.jobs.logs.log_options import Budget, LogLine, LogSelector, LogStreamOptions
from trainwright.jobs.logs.read_logs import (
    _ALL,
    TOO_MANY,
    RecentLines,
    SkippedLines,
    has_started,
    last_lines,
    log_of,
    size_of,
    source_of,
)
from trainwright.jobs.state.pods import ASKED_AGAIN_SECONDS, Denials, pods_of

GRACE_SECONDS = 10.0
"""Seconds without a line after the end of the job after which the end of its pods' logs is not waited for."""
MOST_SECONDS = 60.0
"""Maximum seconds to show lines after the end of the job: a pod may print until its grace period expires."""
_UNBOUNDED = Budget()
LOG_POLL_SECONDS = 0.5
"""Interval at which a live log is shown."""
_IDLE_POLL_SECONDS, _READING_POLL_SECONDS = 5.0, 30.0
"""Seconds between lists of the pods while no log is being read, and while one is."""


def follow_logs(cluster: Cluster, trainjob: Obj, selector: LogSelector = _ALL, budget: Budget = _UNBOUNDED) -> Iterator[LogLine]:
    """Follow the logs until the TrainJob ends, including those of pods that start later. Yields each line once.

    When the total budget is exhausted a message says so, and when the job ends how many lines are not shown, and the last ones.
    Raises ApiError if the API server has been unreachable for a minute.
    """
    following = _FollowUntilFinished(cluster, trainjob, selector, budget)
    try:
        yield from following.lines()
    finally:
        following.closed.set()


class LogFollower:
    """Reads the logs of pods in one thread each, into a bounded queue: readers block while it is full."""

    def __init__(self, cluster: Cluster, trainjob: Obj, selector: LogSelector, budget: Budget):
        self.closed = threading.Event()
        self._cluster, self._trainjob, self._selector, self._budget = cluster, trainjob, selector, budget
        self._pending: queue.Queue[LogLine | None] = queue.Queue(maxsize=budget.pending_lines)
        """Lines, and None when a reader has ended: it wakes who waits for its lines."""
        self._logs: dict[str, ContainerLog] = {}
        """By the UID of the pod."""
        self._denied = Denials()
        """The logs that cannot be read at present, by the UID of the pod."""
        self._reading: set[str] = set()
        self._readers_lock = threading.Lock()
        self._queued: dict[str, str] = {}
        """The time of the last line that was queued of each pod, by its UID."""
        self.recent = RecentLines()
        self._shown = 0
        self.is_exhausted = False
        """Whether the next line would exceed the total budget."""
        self._skipped = SkippedLines(budget.tail_lines)

    @property
    def is_reading(self) -> bool:
        return bool(self._reading)

    @property
    def restarts(self) -> int:
        """Restarts of the containers whose logs were read."""
        return sum(log.restarts for log in tuple(self._logs.values()))

    def start_readers(self, pods: list[Obj], *, is_last: bool = False) -> None:
        """Start reading the selected pods that have started and are not being read yet.

        A log that could not be read is asked for again every minute, and at once if this is the last call.
        """
        with self._readers_lock:
            for pod in [] if self.is_exhausted else self._selector.of(pods):
                uid, log = uid_of(pod), self._logs.get(uid_of(pod))
                has_to_read = log is None or (bool(log.problem) and (is_last or uid not in self._denied))
                if has_to_read and uid not in self._reading and has_started(pod):
                    self._logs[uid] = log = log or log_of(self._cluster, pod, self._selector, closed=self.closed)
                    self._reading.add(uid)
                    threading.Thread(target=self._read, args=(pod, log), daemon=True).start()

    def lines_within(self, seconds: float, *, is_limited: bool = True) -> Iterator[LogLine]:
        """Yield buffered lines, and those that arrive within `seconds`, within the budget of one tick if it is limited."""
        deadline, shown, tick = time.monotonic() + seconds, 0, self._budget.tick if is_limited else None
        while not self.is_exhausted:
            left = deadline - time.monotonic()
            if tick is not None and shown >= tick and left > 0:  # the rest is shown in the next tick
                time.sleep(left)
                return
            if not is_limited and seconds and left <= 0:  # lines may come for ever
                return
            try:
                line = self._pending.get(timeout=left) if left > 0 else self._pending.get_nowait()
            except queue.Empty:  # the time is over
                return
            if line is None:  # a reader has ended; after the last one nothing more comes
                if not self.is_reading and self._pending.empty():
                    return
                continue
            shown += size_of(line)
            yield from self._count(line)

    def buffered_lines(self) -> Iterator[LogLine]:
        """Yield buffered lines without waiting, within the budget of one tick."""
        shown = 0
        while not self.is_exhausted and (self._budget.tick is None or shown < self._budget.tick):
            try:
                line = self._pending.get_nowait()
            except queue.Empty:  # nothing new: the caller has other work
                return
            if line is not None:
                shown += size_of(line)
                yield from self._count(line)

    def rest(self) -> Iterator[LogLine]:
        """Yield the remaining lines of a job that has ended, up to the total budget; then how many are left out, and the last ones."""
        began = quiet_since = time.monotonic()
        while not self.is_exhausted:
            is_done, now = not self.is_reading, time.monotonic()
            if now > quiet_since + GRACE_SECONDS:  # a pod that outlives its job, and prints nothing
                return
            if now > began + MOST_SECONDS:  # one that goes on printing: its last lines have to do
                break
            for line in self.lines_within(0 if is_done else container_log.POLL_SECONDS, is_limited=False):
                quiet_since = time.monotonic()
                yield line
            if is_done and not self.is_exhausted:  # every line was shown
                return
        self.closed.set()
        yield from self._last_lines()

    def _count(self, line: LogLine) -> Iterator[LogLine]:
        size = size_of(line)
        if self._budget.total is None or self._shown + size <= self._budget.total:
            self._shown += size
            yield line
            return
        self.is_exhausted = True
        self.closed.set()
        self._skipped.add(line)
        yield LogLine("", f"({self._shown} bytes shown, the limit is reached; the last lines follow when the job ends)")

    def _last_lines(self) -> Iterator[LogLine]:
        """Yield how many lines were left out, and the last ones; only these if the rest cannot be read in time."""
        deadline = time.monotonic() + GRACE_SECONDS
        self._skip_queued()
        try:
            pods = self._selector.of(pods_of(self._cluster, self._trainjob, self._selector.step))
            for pod in filter(has_started, pods):
                for stamp, text in log_of(self._cluster, pod, self._selector, self._queued.get(uid_of(pod), "")).read():
                    self._skipped.add(LogLine(source_of(pod), text, stamp))
                    if time.monotonic() > deadline:  # a log of gigabytes: only its tail is read instead
                        yield TOO_MANY
                        yield from last_lines(self._cluster, self._trainjob, self._selector, self._budget)
                        return
        except ApiError as error:
            yield LogLine("", f"(the last lines cannot be read: {error.message})")
        yield from self._skipped.lines()

    def _skip_queued(self) -> None:
        """Take what was queued. Readers that still wait for space queue one more line, and end."""
        deadline = time.monotonic() + container_log.POLL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._pending.get(timeout=left) if self.is_reading else self._pending.get_nowait()
            except queue.Empty:
                return
            if line is not None:
                self._skipped.add(line)

    def _read(self, pod: Obj, log: ContainerLog) -> None:
        source = source_of(pod)
        try:
            for stamp, text in log.follow():
                if not self._put(LogLine(source, text, stamp)):  # closed: nobody reads on
                    return
                self._queued[uid_of(pod)] = stamp or self._queued.get(uid_of(pod), "")
                self.recent.add(uid_of(pod), text)
        finally:
            with self._readers_lock:
                self._reading.discard(uid_of(pod))
                if log.problem:
                    self._denied.note(uid_of(pod))
            with suppress(queue.Full):  # then nobody waits
                self._pending.put_nowait(None)

    def _put(self, line: LogLine) -> bool:
        """Queue a line; False when the follower is closed."""
        while not self.closed.is_set():
            try:
                self._pending.put(line, timeout=container_log.POLL_SECONDS)
            except queue.Full:  # the reader waits with its connection, which holds the log back
                continue
            return True
        return False


class _FollowUntilFinished(LogFollower):
    """Follows the logs until the job, which it polls, has ended."""

    def lines(self) -> Iterator[LogLine]:
        lost, has_ended = 0, False
        while not has_ended:
            try:
                has_ended = self._update()
                lost = 0
            except ApiError:  # open connections keep streaming; fail only if the API server stays unreachable
                lost += 1
                if lost > container_log.MAX_LOST_CONNECTIONS:
                    raise
            if self.is_exhausted and not has_ended:
                time.sleep(container_log.POLL_SECONDS)
            elif not has_ended:
                yield from self.lines_within(container_log.POLL_SECONDS)
        yield from self.rest()

    def _update(self) -> bool:
        """Return whether the job has ended, and start reading pods that have started; in this order, so that no pod is missed."""
        has_ended = _is_over(self._cluster, self._trainjob)
        pods = [] if self.is_exhausted else pods_of(self._cluster, self._trainjob, self._selector.step)
        self.start_readers(pods, is_last=has_ended)
        return has_ended


def _is_over(cluster: Cluster, trainjob: Obj) -> bool:
    try:
        now = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:  # deleted jobs have ended
        return True
    return uid_of(now) != uid_of(trainjob) or phase_of(now).is_final


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
        if follower is None:  # no log was asked for
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
