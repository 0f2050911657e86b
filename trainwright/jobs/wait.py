"""Waiting for a TrainJob on a watch, with a deadline for each thing that can take too long: queue, start, run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.conditions import condition, is_finished
from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.clock import Clock, Deadlines
from trainwright.jobs.errors import JobDeleted, TrainJobDeadline, deadline_passed
from trainwright.jobs.verdict import deadline_of, failure_of
from trainwright.jobs.watching import Watching

_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Progress:
    """What somebody who waits is told: the phase, and what the training reports of itself (percent, seconds left, metrics)."""

    phase: Phase
    percent: int | None = None
    remaining_seconds: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    note: str = ""
    """Why it waits: what its queue says, or that the cluster cannot hold it."""


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

    Raises TrainJobFailed with a report, TrainJobDeleted, TrainJobDeadline (their subclasses tell causes apart), and the
    cluster's own error when the job may not be read or the cluster has been lost for half an hour. `on_progress` is called
    in this thread at every change.
    `stop`, when set from outside, ends the wait with the job as it was seen last.
    """
    with Watching(cluster, trainjob) as watching:
        return _follow(cluster, Waited(trainjob, deadlines), watching, on_progress, stop or threading.Event())


def _follow(
    cluster: Cluster,
    waited: Waited,
    watching: Watching,
    on_progress: Callable[[Progress], None],
    stop: threading.Event,
) -> Obj:
    shown: Progress | None = None
    while not stop.is_set():
        progress = progress_of(waited.trainjob)
        if progress != shown:
            on_progress(progress)
            shown = progress
        if progress.phase is Phase.Succeeded:
            return waited.trainjob
        if progress.phase is Phase.Failed:
            raise failure_of(cluster, waited.trainjob)
        if late := waited.overdue():
            raise deadline_of(cluster, waited.trainjob, str(late), late.what)
        change = watching.next_change(min(_LOOK_SECONDS, max(waited.left(), 0.01)))
        if change is not None:
            _take_in(cluster, waited, change)
        elif watching.is_absent():
            waited.saw("MODIFIED", _as_it_is(cluster, waited))
    return waited.trainjob


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
        return deadline_passed(f"{_named(self.trainjob)} was {phase.value} for more than {limit:g} s", what)


def progress_of(trainjob: Obj) -> Progress:
    """Phase and progress as the object shows them."""
    reported = (trainjob.get("status") or {}).get("trainerStatus") or {}
    metrics = tuple((metric["name"], metric["value"]) for metric in reported.get("metrics") or [])
    percent, left = reported.get("progressPercentage"), reported.get("estimatedRemainingSeconds")
    return Progress(phase_of(trainjob), percent, left, metrics, _note(trainjob))


def _note(trainjob: Obj) -> str:
    if is_finished(trainjob):
        return ""
    found = [condition(trainjob, kind) for kind in (names.QUOTA_RESERVED, names.FITS_CLUSTER)]
    return "; ".join(str(entry.get("message")) for entry in found if entry is not None and entry.get("status") == "False")


def _named(trainjob: Obj) -> str:
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"
