"""Decides when to look beyond the status of an awaited TrainJob, and what to read: its pods, its JobSet, why it waits.

The status of a TrainJob has neither exit codes nor reasons. Pods are listed whenever the status changes, since a failed or evicted
pod may be deleted a moment later, and now and then in between. Three objects remember what one look does not show: the pace of
looks, the reason to wait and since when, and the count of failures.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainwright.api import names
from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import NodeLost, TooManyRestarts, cannot_start
from trainwright.jobs.diagnosis.pod_failure import STOPPED_CODES, PodFailure, pod_failure
from trainwright.jobs.diagnosis.report import PodObserver
from trainwright.jobs.diagnosis.waiting_reason import ReasonFinder, WaitingReason, node_reason
from trainwright.jobs.logs.log_options import LogStreamOptions
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.pod_history import PodHistory, SeenPod
from trainwright.jobs.state.pods import (
    Denials,
    FailingJob,
    RestartCounts,
    container_restarts,
    failing_jobs,
    jobs_of,
    read_restarts,
    started_from,
    step_of,
)
from trainwright.jobs.state.started_pods import GangStart, StartedPods

STALLED_SECONDS = 9.0
"""Seconds without progress after which the reason is looked for, so that it is shown within ten."""
_CONFIRMED_SECONDS = 4.0
"""Seconds for which a state that cannot recover must have been observed: more than one look."""
_MAX_LOOKS_APART = 12
"""Of the looks at a job and pods that do not change, the first one asks the cluster more, then the second, fourth, eighth, and each
twelfth after that: an event may be the only change."""
_FIRST_REPEAT_SECONDS = 300.0
"""After this time the same reason is shown again, then after twice as long, and so on."""
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
        self._pace, self._reason, self._failures = _Pace(), _LastingReason(), _FailureCount(settings.restarts)
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
        is_stopping = not is_pending and any(map(_is_stopping, pods))
        found = Observation(is_pending, is_stopping, self._new_failures(phase), restarts, started_from=started_from(pods))
        if phase.is_final:
            return found
        asks = self._pace.asks(pods, is_last=self._fails_next())
        self._read_start(phase, pods, asks)
        is_partial = phase is Phase.Running and self._start is not None and not self._start.is_complete
        if phase is Phase.Running and not is_partial:
            self._reason.set(node_reason(pods))
            return replace(found, reason=self._reason.text(), is_impaired=self._reason.last is not None)
        self._reason.set(self._find_reason(trainjob, phase, pods, asks))
        reason = self._reason.text()
        if is_partial and reason and self._start is not None:
            reason = f"{self._start.describe()}; {reason}"
        return replace(found, reason=reason, is_impaired=is_partial)

    def _read_start(self, phase: Phase, pods: list[Obj], asks: bool) -> None:
        """Find out which pods have started. A job that is queued or suspended has none, and its deadline is another one."""
        if self._is_blind:
            self._start = None
        elif phase not in (Phase.Queued, Phase.Suspended):
            self._start = self._started.read(pods, asks=asks)

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
        self._restarts = RestartCounts(jobset, container_restarts(pods))
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


class _Pace:
    """When to look at a job, and which looks ask the cluster for what neither the job nor the watch of its pods shows."""

    def __init__(self) -> None:
        self.due = self._changed = time.monotonic()
        self._status: object = None
        self._known: object = None
        self._looks_until_asking, self._looks_apart = 0, 0

    @property
    def is_stalled(self) -> bool:
        """Whether the status has not changed for so long that the reason is looked for."""
        return time.monotonic() >= self._changed + STALLED_SECONDS

    def is_due(self, trainjob: Obj) -> bool:
        return time.monotonic() >= self.due or _status_of(trainjob) != self._status

    def look_by(self, moment: float) -> None:
        """Make a look due at this moment at the latest."""
        self.due = min(self.due, moment)

    def ask_next(self) -> None:
        """Let the next look ask the cluster."""
        self._known = None

    def begins_look(self, trainjob: Obj, phase: Phase, interval: float) -> bool:
        """Note the status, and when the look after this one is due. False at first for a job that has not started: it may soon."""
        now, status = time.monotonic(), _status_of(trainjob)
        if status != self._status:
            is_first, self._status, self._changed = self._status is None, status, now
            if is_first and phase in (Phase.Starting, Phase.Queued, Phase.Suspended):
                self.due = now + STALLED_SECONDS
                return False
        self.due = now + interval
        if not self.is_stalled:
            self.look_by(self._changed + STALLED_SECONDS)
        return True

    def asks(self, pods: list[Obj], *, is_last: bool) -> bool:
        """Whether this look asks for JobSet, Jobs and events. One after which the wait may fail does (`is_last`)."""
        known = (self._status, [(uid_of(pod), pod["metadata"].get("resourceVersion")) for pod in pods])
        self._looks_until_asking -= 1
        if known != self._known:
            self._known, self._looks_apart, self._looks_until_asking = known, 0, 0
        if self._looks_until_asking > 0 and not is_last:
            return False
        self._looks_apart = min(max(1, 2 * self._looks_apart), _MAX_LOOKS_APART)
        self._looks_until_asking = self._looks_apart
        return True


class _LastingReason:
    """Why the job waits, and for how long it has done so for this reason."""

    def __init__(self) -> None:
        self.last: WaitingReason | None = None
        self._since = self._repeat = 0.0

    @property
    def seconds(self) -> float:
        """How long the last reason has lasted."""
        return time.monotonic() - self._since

    @property
    def is_confirmed(self) -> bool:
        """Whether the job cannot recover from the last reason, and it has lasted long enough to be sure."""
        if self.last is None or not self.last.cannot_recover:
            return False
        return self.seconds >= max(_CONFIRMED_SECONDS, self.last.confirmed_after)

    def set(self, reason: WaitingReason | None) -> None:
        """Note what a look has found; None if the job waits no longer."""
        now = time.monotonic()
        if reason is not None and (self.last is None or self.last.key != reason.key):
            self._since, self._repeat, self.last = now, _FIRST_REPEAT_SECONDS, reason
        elif reason is None:
            self.last = None
        elif self.last is not None:  # keep the first wording, so that it is not shown again
            self.last = replace(reason, text=self.last.text)
        if now - self._since >= 2 * self._repeat:
            self._repeat *= 2

    def text(self) -> str:
        """Return the reason in words, which change when it is to be shown again; empty without one."""
        if self.last is None:
            return ""
        minutes = f" (for {self._repeat / 60:.0f} min)" if self.seconds >= self._repeat else ""
        return f"{self.last.text}{minutes}"


class _FailureCount:
    """Counts the failures of pods against those that the step allows within one job; None leaves them to the runtime."""

    def __init__(self, allowed: int | None):
        self._allowed = allowed
        self._suspended: set[str] = set()
        """UIDs of the pods that were there when the job was suspended."""
        self._failed: dict[tuple[str, str], PodFailure] = {}
        self._too_often_since = 0.0

    def check(self, trainjob: Obj, pods: list[SeenPod]) -> float | None:
        """Count; returns when to look again, None if pods have not failed too often.

        Raises TooManyRestarts if they have, or one can never run, and the job does not fail by itself within a moment. Whether a pod
        can never run counts only where the step says how often pods may fail: the job is its own.
        """
        if self._allowed is None:
            return None
        if trainjob["spec"].get("suspend"):  # its pods are being stopped: torchrun, for one, exits with 1 on SIGTERM
            self._suspended |= {uid_of(seen.pod) for seen in pods}
            self._too_often_since = 0.0
            return None
        self._count(pods)
        hopeless = next((failure for failure in self._failed.values() if failure.cannot_run), None)
        if hopeless is None and len(self._failed) <= self._allowed:
            return None
        now = time.monotonic()
        self._too_often_since = self._too_often_since or now
        if now < self._too_often_since + _CONFIRMED_SECONDS:
            return self._too_often_since + _CONFIRMED_SECONDS
        first = hopeless or next(iter(self._failed.values()))
        limit = f"limits.restarts allows {self._allowed}" if self._allowed else "set `limits.restarts` to restart failed pods"
        raise TooManyRestarts(f"pod {first.name} {first.describe()}; {'to start it again cannot help' if hopeless else limit}")

    def _count(self, pods: list[SeenPod]) -> None:
        for seen in pods:
            failure = pod_failure(seen.pod, seen) if uid_of(seen.pod) not in self._suspended else None
            # Neither an eviction, nor a pod that was stopped because of another one, is a failure of the training.
            if failure is None or failure.disruption or not failure.is_own_failure or failure.step in names.INITIALIZERS:
                continue
            failure = failure.with_launcher_message(seen.lines_of(failure.container, failure.finished))
            self._failed.setdefault((failure.name, f"{failure.container} {failure.finished}"), failure)


def _hopeless(name: str, reason: WaitingReason) -> str:
    advice = f"; {reason.advice}" if reason.advice else ""
    if reason.confirmed_after:
        return f"{name} has not started for {reason.confirmed_after:.0f} s: {reason.text}{advice}"
    return f"{name} can never start: {reason.text}{advice}"


def _status_of(trainjob: Obj) -> object:
    status = trainjob.get("status") or {}
    return trainjob["spec"].get("suspend"), status.get("conditions"), status.get("jobsStatus")


def _has_active(trainjob: Obj) -> bool:
    return any(entry.get("active") for entry in (trainjob.get("status") or {}).get("jobsStatus") or [])


def _is_stopping(pod: Obj) -> bool:
    return is_deleting(pod) and (pod.get("status") or {}).get("phase") == "Running" and step_of(pod) not in names.INITIALIZERS


def _is_pending(pod: Obj) -> bool:
    is_waiting = (pod.get("status") or {}).get("phase", "Pending") == "Pending"
    return is_waiting and not is_deleting(pod) and step_of(pod) not in names.INITIALIZERS
