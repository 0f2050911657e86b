"""Waiting for a TrainJob on a watch, with a deadline for each thing that can take too long: queue, start, run."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.api.errors import Forbidden, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.reflector import Reflector
from trainwright.jobs.errors import TrainJobDeadline, TrainJobDeleted, TrainJobFailed
from trainwright.jobs.phase import Phase, phase_of
from trainwright.jobs.report import failure_report, last_seen

_LOOK_SECONDS = 1.0
_CONNECTION_SECONDS = 30
"""How long a watch outlives its wait at most."""
_LOST_SECONDS = 1800
"""A cluster that has answered nothing for so long will not tell how the job ended."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a job may be queued or suspended, starting (until it trains), and running; None is no limit."""

    queue: float | None = None
    start: float | None = None
    run: float | None = None


@dataclass(frozen=True)
class Progress:
    """What somebody who waits is told: the phase, and what the training reports of itself (percent, seconds left, metrics)."""

    phase: Phase
    percent: int | None = None
    remaining_seconds: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()


_NO_DEADLINES = Deadlines()


def wait_for(
    cluster: Cluster,
    trainjob: Obj,
    *,
    deadlines: Deadlines = _NO_DEADLINES,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    stop: threading.Event | None = None,
) -> Obj:
    """Wait until the TrainJob has succeeded; returns it.

    Raises TrainJobFailed with a report, TrainJobDeleted, TrainJobDeadline, and the cluster's own error when the job may
    not be read or the cluster has been lost for half an hour. `on_progress` is called in this thread at every change.
    `stop`, when set from outside, ends the wait with the job as it was seen last.
    """
    changes: queue.Queue[tuple[str, Obj]] = queue.Queue(maxsize=1000)
    ended = threading.Event()
    reflector = Reflector(
        cluster,
        TRAINJOB,
        namespace_of(trainjob),
        handler=lambda event, obj: changes.put((event, obj)),
        field_selector=f"metadata.name={name_of(trainjob)}",
        stop=ended,
        connection_seconds=_CONNECTION_SECONDS,
    )
    reflector.start()
    try:
        return _follow(cluster, trainjob, changes, reflector, deadlines, on_progress, stop or threading.Event())
    finally:
        ended.set()


def _follow(
    cluster: Cluster,
    trainjob: Obj,
    changes: queue.Queue[tuple[str, Obj]],
    reflector: Reflector,
    deadlines: Deadlines,
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
) -> Obj:
    watch = _Clock(deadlines)
    shown: Progress | None = None
    while not stop.is_set():
        progress = progress_of(trainjob)
        if progress != shown:
            on_progress(progress)
            shown = progress
        if progress.phase is Phase.Succeeded:
            return trainjob
        if progress.phase is Phase.Failed:
            raise TrainJobFailed(failure_report(cluster, trainjob), trainjob)
        watch.check(cluster, trainjob, progress.phase)
        try:
            event, seen = changes.get(timeout=min(_LOOK_SECONDS, max(watch.left(progress.phase), 0.01)))
        except queue.Empty:
            _check_reachable(reflector)
            if reflector.synced.is_set() and not reflector.known:
                raise TrainJobDeleted(f"{_named(trainjob)} is gone: it was deleted while somebody waited for it") from None
            continue
        if event == "DELETED" or uid_of(seen) != uid_of(trainjob):
            raise TrainJobDeleted(f"{_named(trainjob)} was deleted while somebody waited for it")
        trainjob = seen
    return trainjob


def _check_reachable(reflector: Reflector) -> None:
    """Raise the cluster's error when going on would be waiting for nothing."""
    if reflector.failure is None:
        return
    since, error = reflector.failure
    refused = isinstance(error, Forbidden | Unauthorized) and not reflector.synced.is_set()
    if refused or time.monotonic() - since > _LOST_SECONDS:
        raise error


def progress_of(trainjob: Obj) -> Progress:
    """Phase and progress as the object shows them."""
    reported = (trainjob.get("status") or {}).get("trainerStatus") or {}
    metrics = tuple((metric["name"], metric["value"]) for metric in reported.get("metrics") or [])
    return Progress(phase_of(trainjob), reported.get("progressPercentage"), reported.get("estimatedRemainingSeconds"), metrics)


class _Clock:
    """The time spent in what each deadline counts, and which deadline counts in a phase.

    Time is summed: a job that runs, is queued again and runs on has used up what it spent before.
    """

    def __init__(self, deadlines: Deadlines):
        self._deadlines = deadlines
        self._spent = {"queue": 0.0, "start": 0.0, "run": 0.0}
        self._what, self._looked = "queue", time.monotonic()

    def left(self, phase: Phase) -> float:
        """Seconds until the deadline of this phase; endless without one."""
        now = time.monotonic()
        self._spent[self._what] += now - self._looked
        self._looked = now
        self._what, limit = self._limit(phase)
        return math.inf if limit is None else limit - self._spent[self._what]

    def check(self, cluster: Cluster, trainjob: Obj, phase: Phase) -> None:
        """Raise TrainJobDeadline when it has passed."""
        if self.left(phase) <= 0:
            what, limit = self._limit(phase)
            seen = last_seen(cluster, trainjob)
            raise TrainJobDeadline(f"{_named(trainjob)} was {phase.value} for more than {limit:g} s; {seen}", what)

    def _limit(self, phase: Phase) -> tuple[str, float | None]:
        if phase in (Phase.Queued, Phase.Suspended):
            return "queue", self._deadlines.queue
        if phase is Phase.Starting:
            return "start", self._deadlines.start
        return "run", self._deadlines.run


def _named(trainjob: Obj) -> str:
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"
