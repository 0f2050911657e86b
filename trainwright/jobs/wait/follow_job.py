"""Waits for a TrainJob on a watch, with separate deadlines for queue, start and run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from trainwright.api.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.backoff import Backoff
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import (
    Diverged,
    TooManyRestarts,
    TrainJobDeadline,
    TrainJobDeleted,
    TrainJobFailed,
    deadline_error,
)
from trainwright.jobs.diagnosis.failure_class import deadline_of, end_of, failure_of
from trainwright.jobs.diagnosis.report import read_usage
from trainwright.jobs.logs.follow_logs import LOG_POLL_SECONDS, LiveLogs
from trainwright.jobs.logs.log_options import LogLine
from trainwright.jobs.logs.training_log import read_training_log
from trainwright.jobs.state.deadline_timer import Deadlines, DeadlineTimer, is_initializing
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.progress import DivergenceDetector
from trainwright.jobs.state.started_pods import GangStart
from trainwright.jobs.state.usage import NO_USAGE, Usage
from trainwright.jobs.wait.give_up import raise_if_stopped_early
from trainwright.jobs.wait.job_events import EventTracker, JobEvents, Logged, OnJobEvents, Used, ignore_events
from trainwright.jobs.wait.job_observer import JobObserver, WaitSettings
from trainwright.jobs.wait.job_watch import JobWatch

_MAX_POLL_SECONDS = 20.0
_MAX_LOOKS_PER_SECOND = 10
_waits = 0
_lock = threading.Lock()
_SETTINGS = WaitSettings()


def wait_for(
    cluster: Cluster,
    trainjob: Obj,
    settings: WaitSettings = _SETTINGS,
    *,
    on_event: OnJobEvents = ignore_events,
    on_change: Callable[[Obj], None] = lambda _trainjob: None,
    stop: threading.Event | None = None,
) -> Obj:
    """Wait until the TrainJob has succeeded; returns it.

    Setting `stop` ends the wait; the job is then returned in its last observed state. A job that another client has given up
    ends the wait with that client's error.

    Args:
        cluster: Where the job is.
        trainjob: The job.
        settings: The deadlines, and how the wait reacts to what it observes.
        on_event: Called in this thread with the events of every change, with `settings.logs` also with all lines of the job's log.
        on_change: Called with every state of the job itself.
        stop: Ends the wait when it is set.

    Raises:
        TrainJobFailed: With a report.
        TrainJobDeadline: A subclass for each cause.
        StoppedEarly, TrainJobDeleted: What was done with the job.
        Diverged, CannotStart, NodeLost: As `settings` say.
        ApiError: The job may not be read, or the API server has been unreachable for half an hour.
    """
    job_watch = JobWatch(cluster, trainjob, settings.connection_seconds)
    with _counted(), job_watch as watch, LiveLogs(cluster, trainjob, settings.logs, watch.cluster) as logs_reader:
        state = JobState(trainjob, settings.deadlines, on_change)
        observer = JobObserver(watch.cluster, trainjob, replace(settings, interval=partial(_interval, settings)))
        publisher = EventPublisher(on_event, logs_reader, observer, settings.poll_seconds)
        return _follow(cluster, state, watch, publisher, stop, settings)


@contextmanager
def _counted() -> Iterator[None]:
    global _waits
    with _lock:
        _waits += 1
    try:
        yield
    finally:
        with _lock:
            _waits -= 1


def _interval(settings: WaitSettings, phase: Phase) -> float:
    """Return the seconds between two looks at a job, so that all waits of the process together look at a bounded rate."""
    return max(settings.interval(phase), _waits / _MAX_LOOKS_PER_SECOND)


def _follow(
    cluster: Cluster,
    state: JobState,
    watch: JobWatch,
    publisher: EventPublisher,
    stop: threading.Event | None,
    settings: WaitSettings,
) -> Obj:
    polls, backoff = 1, Backoff(publisher.poll_seconds, max(publisher.poll_seconds, _MAX_POLL_SECONDS), jitter=0.25)
    while stop is None or not stop.is_set():
        try:
            phase = state.phase = publisher.observe_status(state.trainjob)
            state.start = publisher.start
        except TooManyRestarts as error:
            raise failure_of(cluster, state.trainjob, publisher.history, stopped=str(error)) from None
        if phase.is_final:
            publisher.end(state.trainjob)
        if phase is Phase.Succeeded:
            publisher.publish_used(read_usage(cluster, state.trainjob, publisher.history))
            _judge_end(cluster, state.trainjob, publisher, settings)
            return state.trainjob
        if phase is Phase.Failed:
            failure = end_of(cluster, state.trainjob, publisher.history)
            report = failure.report if isinstance(failure, TrainJobFailed) else None
            publisher.publish_used(report.usage if report is not None else NO_USAGE)
            raise failure
        raise_if_stopped_early(state.trainjob)
        if settings.fail_on_divergence and (diverged := publisher.divergence.running()):
            raise Diverged(state.trainjob, diverged)
        if expired := state.expired_deadline():
            raise deadline_of(cluster, state.trainjob, str(expired), expired.what, publisher.history)
        change = watch.next_change(
            min(backoff.pause(polls), max(state.seconds_left(), 0.01), max(publisher.seconds_left(), 0.01))
        )
        if stop is None and not publisher.has_logs:  # no need to react to `stop`; thousands of waits may share a process
            polls += 1
        if change is not None:
            _observe_change(cluster, state, change)
        elif watch.is_absent():
            state.observe_status("MODIFIED", _read_current(cluster, state))
    return state.trainjob


def _judge_end(cluster: Cluster, trainjob: Obj, publisher: EventPublisher, settings: WaitSettings) -> None:
    """Publish what the training has logged. Raises Diverged for one that has ended with figures that are not finite."""
    if not (settings.fail_on_divergence or publisher.has_metrics):
        return
    found = read_training_log(cluster, trainjob)
    publisher.publish_logged(Logged(found.entries))
    if settings.fail_on_divergence and (diverged := found.divergence_with(publisher.divergence)):
        raise Diverged(trainjob, diverged)


class EventPublisher:
    """Passes the events since the last observation, and new log lines, to the callback."""

    def __init__(self, on_event: OnJobEvents, logs_reader: LiveLogs, observer: JobObserver, poll_seconds: float):
        self._on_event, self._logs, self._observer, self._tracker = on_event, logs_reader, observer, EventTracker()
        self.has_logs = logs_reader.selector is not None
        self._seen: Obj | None = None
        self.poll_seconds = LOG_POLL_SECONDS if self.has_logs else poll_seconds

    @property
    def history(self) -> PodHistory:
        """What was observed of the job's pods, with the last lines of their logs that were followed."""
        self._observer.history.add_shown(self._logs.recent_lines)
        return self._observer.history

    @property
    def start(self) -> GangStart | None:
        """Which pods have started, as far as the last look has shown."""
        return self._observer.start

    @property
    def divergence(self) -> DivergenceDetector:
        """What the reports so far say about a divergence."""
        return self._tracker.divergence

    @property
    def has_metrics(self) -> bool:
        return self._tracker.progress is not None and bool(self._tracker.progress.metrics)

    def publish_used(self, usage: Usage) -> None:
        """Publish what the job has used, if that is known."""
        if usage != NO_USAGE:
            self._on_event((Used(usage),))

    def publish_logged(self, logged: Logged) -> None:
        """Publish what the training itself has logged, if anything."""
        if logged.entries:
            self._on_event((logged,))

    def seconds_left(self) -> float:
        """Return the seconds until the job's pods are to be observed."""
        return self._observer.seconds_left()

    def observe_status(self, trainjob: Obj) -> Phase:
        """Publish the current state of the job, new log lines, and what a look at its pods shows; returns the phase."""
        if trainjob is not self._seen:
            self._seen = trainjob
            self._logs.observe_status(trainjob)
            self._publish(self._tracker.observe_status(trainjob), ())
        self._publish((), self._logs.lines())
        self._observer.observe_log(self._logs.restarts)
        if (observation := self._observer.observe(trainjob)) is not None:
            self._publish(self._tracker.observe_pods(observation), ())
        assert self._tracker.progress is not None
        return self._tracker.progress.phase

    def end(self, trainjob: Obj) -> None:
        """Publish the rest of a finished job's log, and the restarts that it shows."""
        for line in self._logs.remaining_lines():
            self._publish((), [line])
        self._observer.observe_log(self._logs.restarts)
        if (observation := self._observer.observe_end(trainjob)) is not None:
            self._publish(self._tracker.observe_pods(observation), ())

    def _publish(self, events: JobEvents, lines: Iterable[LogLine]) -> None:
        published = [*events, *(event for line in lines for event in self._tracker.observe_line(line))]
        if published:
            self._on_event(tuple(published))


def _observe_change(cluster: Cluster, state: JobState, change: tuple[str, Obj]) -> None:
    """Apply a watch event. A shared watch may lag and report the deletion of an earlier job of the same name: read the job then."""
    try:
        state.observe_status(*change)
    except TrainJobDeleted:
        state.observe_status("MODIFIED", _read_current(cluster, state))


def _read_current(cluster: Cluster, state: JobState) -> Obj:
    """Read the job. Raises TrainJobDeleted. If the API server is unreachable, returns the last observed state."""
    try:
        return cluster.get(TRAINJOB, name_of(state.trainjob), namespace_of(state.trainjob))
    except NotFound:
        raise state.deleted_error() from None
    except ApiError as error:
        if isinstance(error, Forbidden | Unauthorized):
            raise state.deleted_error() from None  # reported by a watch, and cannot be verified
        return state.trainjob


class JobState:
    """The last observed state of the awaited job. Does no I/O, so that threads and event loops can both use it."""

    __slots__ = ("_on_change", "_timer", "phase", "start", "trainjob")

    def __init__(self, trainjob: Obj, deadlines: Deadlines, on_change: Callable[[Obj], None] = lambda _trainjob: None):
        self.trainjob = trainjob
        self._on_change = on_change
        self.phase = phase_of(trainjob)
        """The phase as shown: a job that has run is not `Starting` again because no pod is ready for a moment."""
        self.start: GangStart | None = None
        """Which pods have started; None if that is unknown, then the phase decides which deadline counts."""
        self._timer = DeadlineTimer(deadlines)

    def observe_status(self, event: str, seen: Obj) -> None:
        """Apply a watch event. Raises TrainJobDeleted if the job was deleted, or replaced by another of the same name."""
        if event == "DELETED" or uid_of(seen) != uid_of(self.trainjob):
            raise self.deleted_error()
        self.trainjob = seen
        self._on_change(seen)

    def deleted_error(self) -> TrainJobDeleted:
        return TrainJobDeleted(f"{_describe(self.trainjob)} was deleted while it was being waited for")

    def seconds_left(self) -> float:
        """Return the seconds until the deadline that counts now; infinity if there is none."""
        return self._timer.seconds_left(
            self.phase, is_initializing=is_initializing(self.trainjob), has_started=self._has_started()
        )

    def expired_deadline(self) -> TrainJobDeadline | None:
        """Return the error of an expired deadline; None if none has expired."""
        expired = self._timer.expired(self.phase, is_initializing=is_initializing(self.trainjob), has_started=self._has_started())
        if expired is None:
            return None
        what, limit = expired
        if what == "start" and self.start is not None and self.start.is_partial:
            return deadline_error(f"{_describe(self.trainjob)}: after {limit:g} s {self.start.describe()}", what)
        if what == "total":
            return deadline_error(f"{_describe(self.trainjob)} has not ended within {limit:g} s: it is {self.phase.value}", what)
        return deadline_error(f"{_describe(self.trainjob)} was {self.phase.value} for more than {limit:g} s", what)

    def _has_started(self) -> bool | None:
        return self.start.is_complete if self.start is not None else None


def _describe(trainjob: Obj) -> str:
    return f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"
