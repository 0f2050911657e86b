"""Why a TrainJob failed: its condition, the JobSet's, the pods that failed with exit codes and causes, their last log lines,
events, restarts and hours used. One report, as text for people and as data for programs.
"""

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
from trainwright.cluster.patient import PatientCluster
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.generations import preemptions_before
from trainwright.jobs.job_events import events_of, in_its_time, queue_message, said, steps_of, time_of
from trainwright.jobs.last_words import LAUNCHER_LINES, last_words
from trainwright.jobs.log_signs import Sign, signs_in
from trainwright.jobs.pod_failure import PodFailure, Waiting, pod_failure, waiting_of
from trainwright.jobs.pods import pods_of, step_of
from trainwright.jobs.pods_gone import taken_pods
from trainwright.jobs.restarts import Restarts, restarts_of
from trainwright.jobs.usage import NO_USAGE, Usage, usage_of

LOG_LINES = 20
_LOG_BYTES = 64 * 1024
_MOST_PODS = 4
_PATIENCE_SECONDS = 15
"""The cause decides how a job has failed, and so whether it is tried again: it is asked for more than once."""
_MOST_EVENTS = 5


@dataclass(frozen=True)
class FailureReport:
    """What is known of a failure. What could not be read is in `unread`, and hides nothing else."""

    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    jobset: str = ""
    """`Reason: message` of the JobSet, where it says something else than the TrainJob."""
    pods: tuple[PodFailure, ...] = ()
    """Those that failed, the cause before its consequences; the logs of the first four are read."""
    waiting: tuple[str, Waiting] | None = None
    """The first pod that waits, and for what."""
    events: tuple[str, ...] = ()
    restarts: Restarts | None = None
    usage: Usage = NO_USAGE
    preemptions: int = 0
    """How many earlier generations of the step were preempted."""
    unread: tuple[str, ...] = ()
    seen: str = ""
    """What was seen last, where no pod has failed."""

    @property
    def cause(self) -> PodFailure | None:
        """The pod that failed first."""
        return self.pods[0] if self.pods else None

    @property
    def signs(self) -> tuple[Sign, ...]:
        """What the logs are known to mean, each once; see `log_signs`."""
        failures = (failure for pod in self.pods for failure in (pod, *pod.also))
        return tuple({sign.name: sign for failure in failures for sign in failure.signs}.values())

    @property
    def is_passing(self) -> bool:
        """Whether all that is known of the cause is known to pass."""
        signs = self.cause.signs if self.cause else ()
        return bool(signs) and all(sign.passing for sign in signs)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def as_dict(self) -> Obj:
        """The report as JSON has it."""
        return {
            "trainjob": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
            "condition": {"reason": self.reason, "message": self.message},
            "jobset": self.jobset,
            "pods": [pod.as_dict() for pod in self.pods],
            "waiting": {"pod": self.waiting[0], **asdict(self.waiting[1])} if self.waiting else None,
            "signs": [sign.name for sign in self.signs],
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
            yield f"its JobSet: {self.jobset}"
        for pod in self.pods[:_MOST_PODS]:
            for failure in (pod, *pod.also):
                container = f", container {failure.container}" if failure.container else ""
                yield f"pod {pod.name} (step {pod.step}{container}) {failure.how()}"
                yield from (f"    {line}" for line in failure.lines)
        if len(self.pods) > _MOST_PODS:
            yield f"... and {len(self.pods) - _MOST_PODS} more pods"
        if self.seen:
            yield self.seen
        elif self.waiting is not None:
            yield f"pod {self.waiting[0]} waits: {self.waiting[1]}"
        yield from (f"event: {event}" for event in self.events if self.pods)
        if used := self._used():
            yield f"used: {used}"
        yield from (f"({words})" for words in self.unread)

    def _used(self) -> str:
        parts = []
        if self.restarts is not None and (self.restarts.used or self.restarts.allowed):
            parts.append(f"{self.restarts.used} of {self.restarts.allowed} restarts")
        if self.preemptions:
            parts.append(f"{self.preemptions} of the budget for preemptions")
        return ", ".join([*parts, *_hours(self.usage)])


def failure_report(cluster: Cluster, trainjob: Obj) -> str:
    """The report as text."""
    return str(report_of(cluster, trainjob))


def report_of(cluster: Cluster, trainjob: Obj, now: datetime | None = None) -> FailureReport:
    """The report of a job that has failed. Raises nothing: what cannot be read (gone, forbidden) is said in it."""
    cluster = PatientCluster(cluster, seconds=_PATIENCE_SECONDS)
    verdict = condition(trainjob, "Failed") or {}
    report = FailureReport(
        namespace=namespace_of(trainjob),
        name=name_of(trainjob),
        uid=uid_of(trainjob),
        reason=str(verdict.get("reason", "unknown")),
        message=str(verdict.get("message", "")),
        preemptions=preemptions_before(trainjob),
    )
    report = _with_jobset(report, cluster, trainjob)
    try:
        pods = pods_of(cluster, trainjob)
    except ApiError as error:
        return _unread(report, f"its pods cannot be listed: {error.message}")
    return _with_events(_with_pods(report, cluster, pods, now or datetime.now(UTC)), cluster, trainjob, pods)


def last_seen(cluster: Cluster, trainjob: Obj) -> str:
    """What was seen last of a job that does not get on: it is too large, its pods or its queue wait, else its latest warning."""
    try:
        too_large = condition(trainjob, names.FITS_CLUSTER)
        if too_large is not None and too_large.get("status") == "False":
            return f"last seen: {said(too_large)}"
        pods = pods_of(cluster, trainjob)
        for pod in pods:
            if (waiting := waiting_of(pod)) is not None:
                return f"last seen: pod {name_of(pod)} waits: {waiting}"
        if phase_of(trainjob) is Phase.Queued and (message := queue_message(cluster, trainjob)):
            return f"last seen: the queue says {message}"
        about = f"involvedObject.name={name_of(trainjob)}"
        events = in_its_time(trainjob, cluster.list(EVENT, namespace_of(trainjob), field_selector=about).items)
    except ApiError as error:
        return f"last seen: nothing ({error.message})"
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings:
        return f"last seen: {said(max(warnings, key=time_of))}"
    if not trainjob.get("status") and not pods:
        return "last seen: no controller has looked at it (`trainwright doctor` tells whether there is one)"
    return "last seen: no pod waits and no warning was written"


def waits_for_image(cluster: Cluster, trainjob: Obj) -> bool:
    """Whether a pod of the job waits for an image that cannot be pulled."""
    try:
        waits = [waiting_of(pod) for pod in pods_of(cluster, trainjob)]
    except ApiError:
        return False
    return any(waiting is not None and waiting.part == "image" for waiting in waits)


def used_so_far(cluster: Cluster, trainjob: Obj) -> str:
    """Hours of nodes and GPUs, in words; empty where its pods cannot be read."""
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
        return _unread(report, f"its JobSet cannot be read: {error.message}")
    verdict = condition(jobset, "Failed") or {}
    differs = verdict and (verdict.get("reason"), verdict.get("message")) != (report.reason, report.message)
    words = f"{verdict.get('reason')}: {verdict.get('message')}" if differs else ""
    return replace(report, jobset=words, restarts=restarts_of(jobset))


def _with_pods(report: FailureReport, cluster: Cluster, pods: list[Obj], now: datetime) -> FailureReport:
    failed = [(pod, failure) for pod in pods if (failure := pod_failure(pod)) is not None]
    failed.sort(key=lambda entry: _order(entry[1]))
    read = [_with_log(cluster, pod, failure) for pod, failure in failed[:_MOST_PODS]]
    waits = next(((name_of(pod), waiting) for pod in pods if (waiting := waiting_of(pod)) is not None), None)
    failures = (*read, *(failure for _, failure in failed[_MOST_PODS:]))
    return replace(report, pods=failures, waiting=waits, usage=usage_of(pods, now))


def _order(failure: PodFailure) -> tuple[bool, str]:
    """The cause before its consequences."""
    return failure.is_consequence, failure.finished


def _with_events(report: FailureReport, cluster: Cluster, trainjob: Obj, pods: list[Obj]) -> FailureReport:
    events: list[Obj] = []
    try:
        events = events_of(cluster, trainjob, {step_of(pod) for pod in pods} | steps_of(trainjob))
    except ApiError as error:
        report = _unread(report, f"its events cannot be listed: {error.message}")
    if gone := list(taken_pods(trainjob, events, pods)):
        report = replace(report, pods=tuple(sorted([*gone, *report.pods], key=_order)))
    if not report.pods:
        report = replace(report, seen=last_seen(cluster, trainjob))
    warnings = [said(event) for event in events if event.get("type") == "Warning"]
    return replace(report, events=tuple(dict.fromkeys(warnings))[-_MOST_EVENTS:])


def _unread(report: FailureReport, words: str) -> FailureReport:
    return replace(report, unread=(*report.unread, words))


def _with_log(cluster: Cluster, pod: Obj, failure: PodFailure) -> PodFailure:
    failure = replace(failure, also=tuple(_with_log(cluster, pod, other) for other in failure.also[:_MOST_PODS]))
    if not failure.container:  # evicted before anything ran, or with its containers
        return failure
    try:
        lines = _last_lines(cluster, pod, failure)
    except ApiError as error:
        return failure.with_log([f"(its log cannot be read: {error.message})"], ())
    return failure.with_log(last_words(lines, LOG_LINES) or ["(its log is empty)"], signs_in(lines))


def _last_lines(cluster: Cluster, pod: Obj, failure: PodFailure) -> list[str]:
    """Of the run that failed; where that has printed nothing, or is not kept, of the run beside it."""
    for previous in (failure.is_earlier_run, not failure.is_earlier_run):
        if previous and not failure.restarts:
            continue
        try:
            lines = _read_lines(cluster, pod, failure.container, previous=previous)
        except BadRequest:  # it is not kept, or has not begun
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
