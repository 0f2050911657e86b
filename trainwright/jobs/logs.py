"""The logs of a TrainJob: of one rank or of all, read as they are or followed to the job's end, in as many bytes as are wanted."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, uid_of
from trainwright.api.phase import phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs import log_reader
from trainwright.jobs.log_line import LogLine
from trainwright.jobs.log_reader import ContainerLog
from trainwright.jobs.pods import index_of, pods_of, step_of

_MOST_PENDING = 1000
_TAIL_LINES = 20
"""How many of the last lines are shown of a log that was too long to be shown whole."""
GRACE_SECONDS = 10.0
"""How long after the job's end its pods may take to end their logs."""


@dataclass(frozen=True)
class Wanted:
    """Which lines: of a step's pods with this rank (None: all ranks), from a time on, the last so many of each."""

    step: str = "node"
    rank: int | None = 0
    since: str = ""
    tail: int | None = None

    @classmethod
    def parse(cls, text: str) -> Wanted | None:
        """From `RANK`, `all`, `STEP:RANK` or `STEP:all`; None for `none`. Raises ValueError."""
        if text == "none":
            return None
        step, _, rank = text.rpartition(":")
        if rank != "all" and not (rank.isascii() and rank.isdecimal() and len(rank) < 7):
            raise ValueError(f"logs: {text!r} is not a rank, all, STEP:RANK, STEP:all or none")
        return cls(step or "node", None if rank == "all" else int(rank))

    def of(self, pods: list[Obj]) -> list[Obj]:
        """Those of the pods of its step that are wanted."""
        return [pod for pod in pods if self.rank is None or index_of(pod) == self.rank]


@dataclass(frozen=True)
class Budget:
    """Bytes that are shown in each half second and in total. What a tick has no place for comes later, unless the job ends before."""

    tick: int | None = None
    total: int | None = None


_ALL = Wanted()
_UNBOUNDED = Budget()


def read_logs(cluster: Cluster, trainjob: Obj, wanted: Wanted = _ALL, *, previous: bool = False) -> Iterator[LogLine]:
    """What the logs hold now; `previous`: of the runs before the last restart. Raises NotFound where there is no such pod."""
    pods = pods_of(cluster, trainjob)
    found = wanted.of([pod for pod in pods if step_of(pod) == wanted.step])
    if not found:
        steps = ", ".join(dict.fromkeys(map(step_of, pods))) or "none"
        rank = "" if wanted.rank is None else f" and rank {wanted.rank}"
        raise NotFound(f"TrainJob {name_of(trainjob)} has no pods of the step {wanted.step!r}{rank} (steps with pods: {steps})")
    for pod in [pod for pod in found if has_started(pod)] or found:
        for stamp, text in log_of(cluster, pod, wanted).read(previous=previous):
            yield LogLine(source_of(pod), text, stamp)


def follow_logs(cluster: Cluster, trainjob: Obj, wanted: Wanted = _ALL, budget: Budget = _UNBOUNDED) -> Iterator[LogLine]:
    """The logs as they grow, each line once, until the TrainJob has ended; also of pods that start later.

    Where the total is used up it says so, and shows the last lines when the job ends. Raises ApiError when the cluster has
    been away for a minute.
    """
    following = _ToItsEnd(cluster, trainjob, wanted, budget)
    try:
        yield from following.lines()
    finally:
        following.closed.set()
    if following.used_up:
        yield from last_lines(cluster, trainjob, wanted)


def source_of(pod: Obj) -> str:
    """`STEP-JOB-RANK`, as the pod's own name has it between the job's name and a random end."""
    return f"{step_of(pod)}-{labels_of(pod).get(names.JOB_INDEX_LABEL, '0')}-{index_of(pod)}"


class Following:
    """Readers of pods, each a thread, and the one who takes their lines; readers wait when nobody takes."""

    def __init__(self, cluster: Cluster, wanted: Wanted, budget: Budget):
        self.closed = threading.Event()
        self._cluster, self._wanted, self._budget = cluster, wanted, budget
        self._pending: queue.Queue[LogLine] = queue.Queue(maxsize=_MOST_PENDING)
        self._readers: dict[str, threading.Thread] = {}
        self._logs: list[ContainerLog] = []
        self._beginning = threading.Lock()
        self._shown = 0

    @property
    def used_up(self) -> bool:
        return self._budget.total is not None and self._shown >= self._budget.total

    @property
    def is_reading(self) -> bool:
        return any(reader.is_alive() for reader in tuple(self._readers.values()))

    @property
    def restarts(self) -> int:
        """Of the containers whose logs were read."""
        return sum(log.restarts for log in tuple(self._logs))

    def begin(self, pods: list[Obj]) -> None:
        """Read those of the pods that are wanted, have started, and are not being read."""
        with self._beginning:
            for pod in [] if self.used_up else self._wanted.of(pods):
                if uid_of(pod) not in self._readers and has_started(pod):
                    reader = threading.Thread(target=self._read, args=(pod,), daemon=True)
                    self._readers[uid_of(pod)] = reader
                    reader.start()

    def arriving(self, seconds: float) -> Iterator[LogLine]:
        """What has come, and what comes within that time, within the budget."""
        deadline, shown = time.monotonic() + seconds, 0
        while True:
            left = deadline - time.monotonic()
            if self._budget.tick is not None and shown >= self._budget.tick and left > 0:
                time.sleep(left)
                return
            try:
                line = self._pending.get(timeout=left) if left > 0 else self._pending.get_nowait()
            except queue.Empty:
                return
            shown += size_of(line)
            yield from self._counted(line)
            if self.used_up:
                return

    def waiting(self) -> Iterator[LogLine]:
        """What has come, in the bytes of one tick."""
        shown = 0
        while not self.used_up and (self._budget.tick is None or shown < self._budget.tick):
            try:
                line = self._pending.get_nowait()
            except queue.Empty:
                return
            shown += size_of(line)
            yield from self._counted(line)

    def _counted(self, line: LogLine) -> Iterator[LogLine]:
        self._shown += size_of(line)
        yield line
        if self.used_up:
            self.closed.set()
            yield LogLine("", f"({self._shown} bytes shown, which is the limit; the last lines follow at the end)")

    def _read(self, pod: Obj) -> None:
        source, log = source_of(pod), log_of(self._cluster, pod, self._wanted, closed=self.closed)
        self._logs.append(log)
        for stamp, text in log.follow():
            if not self._put(LogLine(source, text, stamp)):
                return

    def _put(self, line: LogLine) -> bool:
        """False when nobody wants it any more."""
        while not self.closed.is_set():
            try:
                self._pending.put(line, timeout=log_reader.LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False


class _ToItsEnd(Following):
    """Follows until the job has ended, which it asks the cluster."""

    def __init__(self, cluster: Cluster, trainjob: Obj, wanted: Wanted, budget: Budget):
        super().__init__(cluster, wanted, budget)
        self._trainjob = trainjob
        self._ended: float | None = None

    def lines(self) -> Iterator[LogLine]:
        lost = 0
        while True:
            try:
                self._look()
                lost = 0
            except ApiError:  # logs that are open go on; a cluster that stays away ends it
                lost += 1
                if lost > log_reader.MOST_LOST:
                    raise
            done = self._is_done()
            if self.used_up:
                if self._ended is not None:
                    return
                time.sleep(log_reader.LOOK_SECONDS)
                continue
            yield from self.arriving(0 if done else log_reader.LOOK_SECONDS)
            if done:
                return

    def _look(self) -> None:
        """Whether the job has ended, and which pods have started since the last look; asked in this order."""
        is_over = self._ended is not None or _is_over(self._cluster, self._trainjob)
        self.begin([] if self.used_up else pods_of(self._cluster, self._trainjob, self._wanted.step))
        if is_over and self._ended is None:  # not before its pods have been seen: a job may end before anybody looks
            self._ended = time.monotonic()

    def _is_done(self) -> bool:
        if self._ended is None:
            return False
        return time.monotonic() - self._ended > GRACE_SECONDS or not self.is_reading


def last_lines(cluster: Cluster, trainjob: Obj, wanted: Wanted) -> Iterator[LogLine]:
    """Of a log that was too long to be shown whole."""
    try:
        yield from read_logs(cluster, trainjob, Wanted(wanted.step, wanted.rank, tail=_TAIL_LINES))
    except ApiError as error:
        yield LogLine("", f"(the last lines cannot be read: {error.message})")


def log_of(cluster: Cluster, pod: Obj, wanted: Wanted, since: str = "", closed: threading.Event | None = None) -> ContainerLog:
    """The log of the container that does the step's work; `since` where the wish names no time."""
    containers = [str(container["name"]) for container in pod["spec"]["containers"]]
    container = step_of(pod) if step_of(pod) in containers else containers[0]
    return ContainerLog(cluster, pod, container, wanted.since or since, wanted.tail, closed or threading.Event())


def size_of(line: LogLine) -> int:
    """Bytes, with its end."""
    return len(line.text.encode()) + 1


def has_started(pod: Obj) -> bool:
    """Whether it can have a log."""
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def _is_over(cluster: Cluster, trainjob: Obj) -> bool:
    try:
        now = cluster.get(TRAINJOB, name_of(trainjob), namespace_of(trainjob))
    except NotFound:
        return True
    return uid_of(now) != uid_of(trainjob) or phase_of(now).is_final
