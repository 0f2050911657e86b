"""Decides when to look beyond the status of an awaited TrainJob, and what to read: its pods, its JobSet, why it waits.

The status of a TrainJob has neither exit codes nor reasons. Pods are listed whenever the status changes, since a failed or evicted
pod may be deleted a moment later, and now and then in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainwright.api import names
from trainwright.api.containers import restart_count
from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import NodeLost, cannot_start
from trainwright.jobs.diagnosis.pod_failure import STOPPED_CODES, PodFailure, pod_failure
from trainwright.jobs.diagnosis.reason_finder import ReasonFinder
from trainwright.jobs.diagnosis.report import PodObserver
from trainwright.jobs.diagnosis.waiting_reason import WaitingReason, node_reason
from trainwright.jobs.logs.log_options import LogStreamOptions
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.pods import (
    Denials,
    FailingJob,
    RestartCounts,
    failing_jobs,
    jobs_of,
    read_restarts,
    started_from,
    step_of,
)
from trainwright.jobs.state.started_pods import GangStart, StartedPods
from trainwright.jobs.wait.observer_memory import FailureCount, LastingReason, Pace

_MAX_FAILURES = 20
"""Failures of pods that are shown as they happen, for one job."""
log = logging.getLogger(__name__)


def interval_for(phase: Phase) -> float:
    """Return the seconds between two looks at a job whose status does not change."""
    return 10.0 if phase is Phase.Running else 5.0


@dataclass(frozen=True)
class WaitSettings:
    """What a wait observes, and how it reacts to that."""

    fail_if_stuck: bool = True
    """Whether the wait fails as soon as the job can never start: an invalid image name, a Job that the API server refuses."""
    lost_node_seconds: float | None = None
    """Maximum seconds for which pods may not end on a lost node; None waits until the node returns or is deleted."""
    interval: Callable[[Phase], float] = interval_for
    fail_on_divergence: bool = True
    """Whether the wait fails as soon as the loss or the gradients are not finite in several reports, or in the last one."""
    restarts: int | None = None
    """How often pods of the training may fail and be started again within one job; None: as often as its runtime says."""
    poll_seconds: float = 1.0
    """Seconds between two checks of deadlines and of the watch, at first; they grow while nothing happens."""
    connection_seconds: int = 240
    """Seconds after which the watches of one job are opened again, and for which they may outlive its wait."""
    deadlines: Deadlines = Deadlines()  # noqa: RUF009  (frozen)
    logs: LogStreamOptions | None = None
    """Which lines of the job's log are events, too; None for none."""


@dataclass(frozen=True)
class Observation:
    """What was found; None for what was not looked at."""

    is_pending: bool = False
    """Whether a pod of the training has yet to start."""
    is_stopping: bool = False
    """Whether pods of the training that have run are being stopped, and none has yet to start."""
    failures: tuple[str, ...] = ()
    """How pods have failed since the last look."""
    restarts: RestartCounts | None = None
    reason: str | None = None
    """Why the job waits; empty if it no longer does."""
    is_impaired: bool = False
    """Whether the training runs, but a pod of it has never started, or its node is lost."""
    started_from: str = ""
    """What the training starts from, as far as its pods say it."""


_DEFAULTS = WaitSettings()


class JobObserver:
    """Observes one job. Not thread-safe; reads from the cluster when `observe` is due."""

    def __init__(self, cluster: Cluster, trainjob: Obj, settings: WaitSettings = _DEFAULTS):
        self._cluster, self._settings = cluster, settings
        self._pods, self._reasons = PodObserver(cluster, trainjob), ReasonFinder(cluster, trainjob)
        self._started = StartedPods(cluster, trainjob)
        self._start: GangStart | None = None
        self._pace, self._reason, self._failures = Pace(), LastingReason(), FailureCount(settings.restarts)
        self._failing: list[FailingJob] = []
        self._has_run = False
        self._denied = Denials()
        self._restarts, self._log_restarts = RestartCounts(), 0
        self._shown: set[tuple[str, str]] = set()

    @property
    def history(self) -> PodHistory:
        """What was observed of the pods so far."""
        return self._pods.history

    @property
    def start(self) -> GangStart | None:
        """Which pods have started, as far as the last look has shown; None if that is unknown."""
        return self._start

    def seconds_left(self) -> float:
        """Return the seconds until the next look."""
        return max(0.0, self._pace.due - time.monotonic())

    def observe_log(self, restarts: int) -> None:
        """Note the container restarts that a reader of the log has seen; an increase makes a look due."""
        if restarts > self._log_restarts:
            self._log_restarts = restarts
            self._pace.look_by(time.monotonic())

    def is_due(self, trainjob: Obj) -> bool:
        """Whether `observe` would read from the cluster, or has to note a change. Does no I/O."""
        return not phase_of(trainjob).is_final and self._pace.is_due(trainjob)

    def observe(self, trainjob: Obj) -> Observation | None:
        """Look if it is due, after any change of the job's status; None if it is not, if the job has ended, or on an error.

        Raises CannotStart, NodeLost and TooManyRestarts, according to the settings.
        """
        if not self.is_due(trainjob):
            return None
        phase = phase_of(trainjob)
        if not self._pace.begins_look(trainjob, phase, self._settings.interval(phase)):
            return None
        try:
            observation = self._look(trainjob, phase)
        except ApiError as error:
            log.debug("event=job_not_observed name=%s error=%s", name_of(trainjob), error.message)
            self._pace.ask_next()
            if self._start is not None and not self._start.is_complete:
                self._start = None  # all may have started since
            return None
        self._has_run = self._has_run or phase is Phase.Running
        self._check(trainjob)
        return observation

    def observe_end(self, trainjob: Obj) -> Observation | None:
        """Look once more at a job that has ended, if its log has shown a restart that no look has; None if nothing is new."""
        if self._log_restarts <= self._restarts.containers:
            return None
        try:
            return self._look(trainjob, phase_of(trainjob))
        except ApiError as error:
            log.debug("event=job_not_observed name=%s error=%s", name_of(trainjob), error.message)
            return None

    def _look(self, trainjob: Obj, phase: Phase) -> Observation:
        pods = self._list_pods()
        restarts = self._count_restarts(trainjob, pods)
        is_pending = any(map(_is_pending, pods))
        is_stopping = not is_pending and any(
            is_deleting(pod) and (pod.get("status") or {}).get("phase") == "Running" and step_of(pod) not in names.INITIALIZERS
            for pod in pods
        )
        found = Observation(is_pending, is_stopping, self._new_failures(phase), restarts, started_from=started_from(pods))
        if phase.is_final:
            return found
        asks = self._pace.asks(pods, is_last=self._fails_next())
        if self._is_blind:
            self._start = None
        elif phase not in (Phase.Queued, Phase.Suspended):  # such a job has no pods, and its deadline is another one
            self._start = self._started.read(pods, asks=asks)
        is_partial = phase is Phase.Running and self._start is not None and not self._start.is_complete
        if phase is Phase.Running and not is_partial:
            self._reason.set(node_reason(pods))
            return replace(found, reason=self._reason.text(), is_impaired=self._reason.last is not None)
        self._reason.set(self._find_reason(trainjob, phase, pods, asks))
        reason = self._reason.text()
        if is_partial and reason and self._start is not None:
            reason = f"{self._start.describe()}; {reason}"
        return replace(found, reason=reason, is_impaired=is_partial)

    @property
    def _is_blind(self) -> bool:
        return "pods" in self._denied

    def _list_pods(self) -> list[Obj]:
        if self._is_blind:
            return []
        try:
            return self._pods.observe()
        except Forbidden as error:
            log.debug("event=pods_not_observed error=%s", error.message)
            self._denied.note("pods")
            return []

    def _count_restarts(self, trainjob: Obj, pods: list[Obj]) -> RestartCounts:
        """Read the restarts of the JobSet if they are not known, or its pods show a new one; those of containers are in the pods."""
        attempt = max((seen.restart_attempt for seen in self.history.pods()), default=0)
        known = self._restarts.jobset.used if self._restarts.jobset else 0
        is_unknown = self._is_blind and self._has_run and phase_of(trainjob) is Phase.Starting
        jobset = self._restarts.jobset
        if (jobset is None and "restarts" not in self._denied) or attempt > known or is_unknown:
            jobset = read_restarts(self._cluster, trainjob)
            if jobset is None:
                self._denied.note("restarts")
        self._restarts = RestartCounts(jobset, sum(map(restart_count, pods)))
        return self._restarts

    def _new_failures(self, phase: Phase) -> tuple[str, ...]:
        """Describe failures that were not shown yet. Pods that are only being deleted may be stopped on purpose."""
        texts = []
        for seen in self.history.pods():
            failure = pod_failure(seen.pod, seen)
            if failure is None or phase.is_final or not (failure.disruption or failure.is_own_failure):
                continue
            key = (failure.name, failure.disruption or f"{failure.container} {failure.finished}")
            if key not in self._shown and len(self._shown) < _MAX_FAILURES:
                self._shown.add(key)
                said = failure.with_last_word(seen.lines_of(failure.container, failure.finished))
                if failure.is_own_failure and failure.exit_code in STOPPED_CODES and not failure.out_of_memory:
                    said = replace(said, failed_probe=self._failed_probe(failure))
                texts.append(f"pod {failure.name} {said.describe()}")
        return tuple(texts)

    def _failed_probe(self, failure: PodFailure) -> str:
        try:
            return self._reasons.failed_probe(failure.name, failure.container)
        except ApiError as error:
            log.debug("event=probe_not_read pod=%s error=%s", failure.name, error.message)
            return ""

    def _find_reason(self, trainjob: Obj, phase: Phase, pods: list[Obj], asks: bool) -> WaitingReason | None:
        """Find why the job waits; at once if it was running before, else only after some time."""
        if self._has_run and phase is Phase.Starting and not _has_active(trainjob):
            if asks:
                self._failing = failing_jobs(jobs_of(self._cluster, trainjob))
            if self._failing and (reason := node_reason(pods)) is not None and reason.part == "node":
                return reason
            if self._failing:
                return WaitingReason(f"its pods are being stopped, because a Job fails: {self._failing[0]}", "job")
        if self._has_run and (reason := node_reason(pods)) is not None:
            return reason
        was_stopped = self._has_run and phase in (Phase.Queued, Phase.Suspended)
        if not was_stopped and not self._pace.is_stalled:  # what was found before the change may hold no more
            return self._reason.last if self._reason.last is not None and self._reason.last.part not in ("job", "queue") else None
        return self._reasons.reason(trainjob, pods, self._start, asks=asks)

    def _check(self, trainjob: Obj) -> None:
        if (look_by := self._failures.check(trainjob, self.history.pods())) is not None:
            self._pace.look_by(look_by)
        reason, limit = self._reason.last, self._settings.lost_node_seconds
        if reason is None:
            return
        name = f"TrainJob {namespace_of(trainjob)}/{name_of(trainjob)}"
        if reason.part == "node" and limit is not None and self._reason.seconds >= limit:
            raise NodeLost(f"{name} does not end: {reason.text}")
        if self._fails_next():
            raise cannot_start(_hopeless(name, reason), reason.part)

    def _fails_next(self) -> bool:
        """Whether the job has waited long enough for the wait to fail, if a look finds the same reason again."""
        return self._settings.fail_if_stuck and self._reason.is_confirmed


def _hopeless(name: str, reason: WaitingReason) -> str:
    advice = f"; {reason.advice}" if reason.advice else ""
    if reason.confirmed_after:
        return f"{name} has not started for {reason.confirmed_after:.0f} s: {reason.text}{advice}"
    return f"{name} can never start: {reason.text}{advice}"


def _has_active(trainjob: Obj) -> bool:
    return any(entry.get("active") for entry in (trainjob.get("status") or {}).get("jobsStatus") or [])


def _is_pending(pod: Obj) -> bool:
    is_waiting = (pod.get("status") or {}).get("phase", "Pending") == "Pending"
    return is_waiting and not is_deleting(pod) and step_of(pod) not in names.INITIALIZERS
