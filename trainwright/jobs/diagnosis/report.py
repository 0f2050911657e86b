"""Failure report of a TrainJob: conditions, failed pods with exit codes and causes, their last log lines, events, restarts, usage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.errors import ApiError, BadRequest, NotFound
from trainwright.api.kinds import EVENT, JOBSET
from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.protocol import Cluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs.diagnosis.disrupted_pods import disrupted_pods
from trainwright.jobs.diagnosis.pod_failure import PodFailure, Waiting, pod_failure, waiting_of
from trainwright.jobs.logs.log_patterns import LogPattern, patterns_in
from trainwright.jobs.logs.log_tail import LAUNCHER_LINES, log_tail
from trainwright.jobs.state.attempts import preemptions_before
from trainwright.jobs.state.kubernetes_events import (
    event_time,
    events_of,
    queue_message,
    reason_and_message,
    since_creation,
    steps_of,
)
from trainwright.jobs.state.pods import pods_of, step_of
from trainwright.jobs.state.restarts import Restarts, restarts_of
from trainwright.jobs.state.usage import NO_USAGE, Usage, usage_of

LOG_LINES = 20
_LOG_BYTES = 64 * 1024
_MAX_PODS = 4
_RETRY_SECONDS = 15
"""Reads for the report are retried, since the cause decides whether the job is retried."""
_MAX_EVENTS = 5


@dataclass(frozen=True)
class FailureReport:
    """A failure, as text for people and as data for programs. Parts that could not be read are listed in `unread`."""

    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    jobset: str = ""
    """`Reason: message` of the JobSet, if it differs from the TrainJob's."""
    pods: tuple[PodFailure, ...] = ()
    """The failed pods, the cause before its consequences; the logs of the first four are read."""
    waiting: tuple[str, Waiting] | None = None
    """The first pod that is waiting, and what it is waiting for."""
    events: tuple[str, ...] = ()
    restarts: Restarts | None = None
    usage: Usage = NO_USAGE
    preemptions: int = 0
    """Number of earlier attempts of the step that were preempted."""
    unread: tuple[str, ...] = ()
    seen: str = ""
    """The last observed state, if no pod has failed."""

    @property
    def cause(self) -> PodFailure | None:
        """The pod that failed first."""
        return self.pods[0] if self.pods else None

    @property
    def log_patterns(self) -> tuple[LogPattern, ...]:
        """The error patterns found in the logs, each once; see `log_patterns`."""
        failures = (failure for pod in self.pods for failure in (pod, *pod.other_containers))
        return tuple({pattern.name: pattern for failure in failures for pattern in failure.log_patterns}.values())

    @property
    def is_transient(self) -> bool:
        """Whether all error patterns of the cause are transient."""
        log_patterns = self.cause.log_patterns if self.cause else ()
        return bool(log_patterns) and all(pattern.is_transient for pattern in log_patterns)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def as_dict(self) -> Obj:
        """Return the report as a JSON object."""
        return {
            "trainjob": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
            "condition": {"reason": self.reason, "message": self.message},
            "jobset": self.jobset,
            "pods": [pod.as_dict() for pod in self.pods],
            "waiting": {"pod": self.waiting[0], **asdict(self.waiting[1])} if self.waiting else None,
            "signs": [pattern.name for pattern in self.log_patterns],
            "events": list(self.events),
            "restarts": asdict(self.restarts) if self.restarts else None,
            "preemptions": self.preemptions,
            "nodeHours": round(self.usage.node_hours, 4),
            "gpuHours": round(self.usage.gpu_hours, 4),
            "unread": list(self.unread),
        }

    def _lines(self) -> Iterator[str]:
        yield f"TrainJob {self.namespace}/{self.name} failed: {self.reason}: {self.message}"
        if self.jobset:
            yield f"JobSet: {self.jobset}"
        for pod in self.pods[:_MAX_PODS]:
            for failure in (pod, *pod.other_containers):
                container = f", container {failure.container}" if failure.container else ""
                yield f"pod {pod.name} (step {pod.step}{container}) {failure.describe()}"
                yield from (f"    {line}" for line in failure.lines)
        if len(self.pods) > _MAX_PODS:
            yield f"... and {len(self.pods) - _MAX_PODS} more pods"
        if self.seen:
            yield self.seen
        elif self.waiting is not None:
            yield f"pod {self.waiting[0]} is waiting: {self.waiting[1]}"
        yield from (f"event: {event}" for event in self.events if self.pods)
        if used := self._used():
            yield f"used: {used}"
        yield from (f"({text})" for text in self.unread)

    def _used(self) -> str:
        parts = []
        if self.restarts is not None and (self.restarts.used or self.restarts.allowed):
            parts.append(f"{self.restarts.used} of {self.restarts.allowed} restarts")
        if self.preemptions:
            parts.append(f"{self.preemptions} preemptions")
        return ", ".join([*parts, *_hours(self.usage)])


def report_of(cluster: Cluster, trainjob: Obj, now: datetime | None = None) -> FailureReport:
    """Create the report of a failed job. Does not raise: parts that cannot be read (deleted, forbidden) are listed in it."""
    cluster = RetryingCluster(cluster, seconds=_RETRY_SECONDS)
    failed = condition(trainjob, "Failed") or {}
    report = FailureReport(
        namespace=namespace_of(trainjob),
        name=name_of(trainjob),
        uid=uid_of(trainjob),
        reason=str(failed.get("reason", "unknown")),
        message=str(failed.get("message", "")),
        preemptions=preemptions_before(trainjob),
    )
    report = _with_jobset(report, cluster, trainjob)
    try:
        pods = pods_of(cluster, trainjob)
    except ApiError as error:
        return _add_unread(report, f"the pods cannot be listed: {error.message}")
    return _with_events(_with_pods(report, cluster, pods, now or datetime.now(UTC)), cluster, trainjob, pods)


def last_seen(cluster: Cluster, trainjob: Obj) -> str:
    """Return why a job makes no progress: it is too large, its pods or its queue wait, else its latest warning event."""
    try:
        too_large = condition(trainjob, names.FITS_CLUSTER)
        if too_large is not None and too_large.get("status") == "False":
            return f"last seen: {reason_and_message(too_large)}"
        pods = pods_of(cluster, trainjob)
        for pod in pods:
            if (waiting := waiting_of(pod)) is not None:
                return f"last seen: pod {name_of(pod)} is waiting: {waiting}"
        if phase_of(trainjob) is Phase.Queued and (message := queue_message(cluster, trainjob)):
            return f"last seen: queue: {message}"
        about = f"involvedObject.name={name_of(trainjob)}"
        events = since_creation(trainjob, cluster.list(EVENT, namespace_of(trainjob), field_selector=about).items)
    except ApiError as error:
        return f"last seen: nothing ({error.message})"
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings:
        return f"last seen: {reason_and_message(max(warnings, key=event_time))}"
    if not trainjob.get("status") and not pods:
        return "last seen: no controller has processed it (check with `trainwright doctor`)"
    return "last seen: no pod is waiting and there is no warning event"


def is_waiting_for_image(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether a pod of the job is waiting for an image that cannot be pulled."""
    try:
        found = [waiting_of(pod) for pod in pods_of(cluster, trainjob)]
    except ApiError:
        return False
    return any(waiting is not None and waiting.part == "image" for waiting in found)


def usage_summary(cluster: Cluster, trainjob: Obj) -> str:
    """Return node-hours and GPU-hours as text; empty if the pods cannot be read."""
    try:
        usage = usage_of(pods_of(cluster, trainjob), datetime.now(UTC))
    except ApiError:
        return ""
    return f"used: {', '.join(parts)}" if (parts := _hours(usage)) else ""


def _hours(usage: Usage) -> list[str]:
    named = (("node-hours", usage.node_hours), ("GPU-hours", usage.gpu_hours))
    return [f"{hours:.2f} {name}" for name, hours in named if hours]


def _with_jobset(report: FailureReport, cluster: Cluster, trainjob: Obj) -> FailureReport:
    try:
        jobset = cluster.get(JOBSET, report.name, report.namespace)
    except NotFound:
        return report
    except ApiError as error:
        return _add_unread(report, f"the JobSet cannot be read: {error.message}")
    failed = condition(jobset, "Failed") or {}
    differs = failed and (failed.get("reason"), failed.get("message")) != (report.reason, report.message)
    text = f"{failed.get('reason')}: {failed.get('message')}" if differs else ""
    return replace(report, jobset=text, restarts=restarts_of(jobset))


def _with_pods(report: FailureReport, cluster: Cluster, pods: list[Obj], now: datetime) -> FailureReport:
    failed = [(pod, failure) for pod in pods if (failure := pod_failure(pod)) is not None]
    failed.sort(key=lambda entry: _failure_order(entry[1]))
    read = [_with_log(cluster, pod, failure) for pod, failure in failed[:_MAX_PODS]]
    first_waiting = next(((name_of(pod), waiting) for pod in pods if (waiting := waiting_of(pod)) is not None), None)
    failures = (*read, *(failure for _, failure in failed[_MAX_PODS:]))
    return replace(report, pods=failures, waiting=first_waiting, usage=usage_of(pods, now))


def _failure_order(failure: PodFailure) -> tuple[bool, str]:
    """Sort key: the cause before its consequences, then by time."""
    return failure.is_consequence, failure.finished


def _with_events(report: FailureReport, cluster: Cluster, trainjob: Obj, pods: list[Obj]) -> FailureReport:
    events: list[Obj] = []
    try:
        events = events_of(cluster, trainjob, {step_of(pod) for pod in pods} | steps_of(trainjob))
    except ApiError as error:
        report = _add_unread(report, f"the events cannot be listed: {error.message}")
    if gone := list(disrupted_pods(trainjob, events, pods)):
        report = replace(report, pods=tuple(sorted([*gone, *report.pods], key=_failure_order)))
    if not report.pods:
        report = replace(report, seen=last_seen(cluster, trainjob))
    warnings = [reason_and_message(event) for event in events if event.get("type") == "Warning"]
    return replace(report, events=tuple(dict.fromkeys(warnings))[-_MAX_EVENTS:])


def _add_unread(report: FailureReport, text: str) -> FailureReport:
    return replace(report, unread=(*report.unread, text))


def _with_log(cluster: Cluster, pod: Obj, failure: PodFailure) -> PodFailure:
    others = tuple(_with_log(cluster, pod, other) for other in failure.other_containers[:_MAX_PODS])
    failure = replace(failure, other_containers=others)
    if not failure.container:  # evicted before a container started, or without container states
        return failure
    try:
        lines = _last_lines(cluster, pod, failure)
    except ApiError as error:
        return failure.with_log([f"(the log cannot be read: {error.message})"], ())
    return failure.with_log(log_tail(lines, LOG_LINES) or ["(the log is empty)"], patterns_in(lines))


def _last_lines(cluster: Cluster, pod: Obj, failure: PodFailure) -> list[str]:
    """Return the last lines of the failed run; if it printed nothing or its log is not kept, of the other run."""
    for previous in (failure.is_previous_run, not failure.is_previous_run):
        if previous and not failure.restarts:
            continue
        try:
            lines = _read_lines(cluster, pod, failure.container, previous=previous)
        except BadRequest:  # not kept, or not started
            continue
        if lines:
            return lines
    return []


def _read_lines(cluster: Cluster, pod: Obj, container: str, *, previous: bool) -> list[str]:
    chunks = cluster.logs(
        name_of(pod),
        namespace_of(pod),
        container=container,
        tail_lines=LOG_LINES + LAUNCHER_LINES,
        limit_bytes=_LOG_BYTES,
        previous=previous,
    )
    return b"".join(chunks).decode("utf-8", "replace").splitlines()
