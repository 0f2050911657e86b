"""Waiting for a TrainJob on a watch, with a deadline for each thing that can take too long: queue, start, run."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.clock import Clock, Deadlines
from trainwright.jobs.errors import JobDeleted, TrainJobDeadline, deadline_passed
from trainwright.jobs.happenings import Happenings, OnHappenings, Story, untold
from trainwright.jobs.live_logs import LOG_LOOK_SECONDS, Live, LiveLogs
from trainwright.jobs.log_line import LogLine
from trainwright.jobs.restarts import begun_anew
from trainwright.jobs.verdict import deadline_of, failure_of
from trainwright.jobs.watching import Watching

_LOOK_SECONDS, _MOST_LOOK_SECONDS = 1.0, 20.0


_NO_DEADLINES = Deadlines()


def wait_for(
    cluster: Cluster,
    trainjob: Obj,
    *,
    deadlines: Deadlines = _NO_DEADLINES,
    tell: OnHappenings = untold,
    logs: Live | None = None,
    stop: threading.Event | None = None,
) -> Obj:
    """Wait until the TrainJob has succeeded; returns it.

    Raises TrainJobFailed with a report, TrainJobDeleted, TrainJobDeadline (their subclasses tell causes apart), and the
    cluster's own error when the job may not be read or the cluster has been lost for half an hour. `tell` is called in this
    thread with what has happened, at every change; with `logs` that is also what the job prints, to its end.
    `stop`, when set from outside, ends the wait with the job as it was seen last.
    """
    with Watching(cluster, trainjob) as watching, LiveLogs(cluster, trainjob, logs) as printed:
        return _follow(cluster, Waited(trainjob, deadlines), watching, Told(tell, printed), stop)


def _follow(cluster: Cluster, waited: Waited, watching: Watching, told: Told, stop: threading.Event | None) -> Obj:
    look = told.look_seconds
    while stop is None or not stop.is_set():
        told.saw(cluster, waited.trainjob)
        phase = phase_of(waited.trainjob)
        if phase.is_final:
            told.end(cluster, waited.trainjob)
        if phase is Phase.Succeeded:
            return waited.trainjob
        if phase is Phase.Failed:
            raise failure_of(cluster, waited.trainjob)
        if late := waited.overdue():
            raise deadline_of(cluster, waited.trainjob, str(late), late.what)
        change = watching.next_change(min(look, max(waited.left(), 0.01)))
        if stop is None and not told.prints:  # nobody ends it from outside: thousands may wait in one process
            look = min(look * random.uniform(1.5, 2.0), _MOST_LOOK_SECONDS)
        if change is not None:
            _take_in(cluster, waited, change)
        elif watching.is_absent():
            waited.saw("MODIFIED", _as_it_is(cluster, waited))
    return waited.trainjob


class Told:
    """What somebody who waits is told: what has happened since the last look, and what was printed."""

    def __init__(self, tell: OnHappenings, printed: LiveLogs):
        self._tell, self._printed, self._story = tell, printed, Story()
        self.prints = printed.wanted is not None
        self._seen: Obj | None = None
        self.look_seconds = LOG_LOOK_SECONDS if self.prints else _LOOK_SECONDS

    def saw(self, cluster: Cluster, trainjob: Obj) -> None:
        """The job as it is now, its log, and, where it fell back, how often it began anew."""
        if trainjob is self._seen and not self.prints:
            return
        self._seen, happened = trainjob, self._story.saw(trainjob)
        self._printed.saw(trainjob)
        self._say(happened + self._begun_anew(cluster, trainjob), self._printed.lines())

    def end(self, cluster: Cluster, trainjob: Obj) -> None:
        """The job has ended: the rest of its log."""
        for line in self._printed.rest():
            self._say((), [line])
        self._say(self._begun_anew(cluster, trainjob), ())

    def _begun_anew(self, cluster: Cluster, trainjob: Obj) -> Happenings:
        self._story.heard(self._printed.restarts)
        return self._story.counted(begun_anew(cluster, trainjob)) if self._story.wonders else ()

    def _say(self, happened: Happenings, lines: Iterable[LogLine]) -> None:
        told = [*happened, *(happening for line in lines for happening in self._story.read(line))]
        if told:
            self._tell(tuple(told))


def _take_in(cluster: Cluster, waited: Waited, change: tuple[str, Obj]) -> None:
    """A watch that others had begun may lag behind: it tells of the end of an earlier job of that name."""
    try:
        waited.saw(*change)
    except JobDeleted:
        waited.saw("MODIFIED", _as_it_is(cluster, waited))


def _as_it_is(cluster: Cluster, waited: Waited) -> Obj:
    """The job as the cluster has it now. Raises JobDeleted; where the cluster cannot say, it is as it was."""
    try:
        return cluster.get(TRAINJOB, name_of(waited.trainjob), namespace_of(waited.trainjob))
    except NotFound:
        raise waited.gone() from None
    except ApiError as error:
        if isinstance(error, Forbidden | Unauthorized):
            raise waited.gone() from None  # a watch said so, and nobody can say otherwise
        return waited.trainjob


class Waited:
    """The one job that is waited for, as it was seen last. Does no I/O: threads and event loops share it."""

    __slots__ = ("_clock", "trainjob")

    def __init__(self, trainjob: Obj, deadlines: Deadlines):
        self.trainjob = trainjob
        self._clock = Clock(deadlines)

    def saw(self, event: str, seen: Obj) -> None:
        """Take in one event of a watch. Raises TrainJobDeleted for the job's end, or another of its name."""
        if event == "DELETED" or uid_of(seen) != uid_of(self.trainjob):
            raise self.gone()
        self.trainjob = seen

    def gone(self) -> JobDeleted:
        return JobDeleted(f"{_named(self.trainjob)} is gone: it was deleted while somebody waited for it")

    def left(self) -> float:
        """Seconds until the deadline of the phase that the job is in; endless without one."""
        return self._clock.left(phase_of(self.trainjob))

    def overdue(self) -> TrainJobDeadline | None:
        """The error of a deadline that has passed."""
        phase = phase_of(self.trainjob)
        late = self._clock.overdue(phase)
        if late is None:
            return None
        what, limit = late
        if what == "total":
            return deadline_passed(f"{_named(self.trainjob)} has not ended within {limit:g} s: it is {phase.value}", what)
        return deadline_passed(f"{_named(self.trainjob)} was {phase.value} for more than {limit:g} s", what)


def _named(trainjob: Obj) -> str:
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"
