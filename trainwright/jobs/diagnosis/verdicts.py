"""The verdict that a client writes on a job that it gives up, from its error; and the error that other clients then raise. Pure."""

from __future__ import annotations

from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.api.times import now
from trainwright.api.verdict import FailedPod, Verdict
from trainwright.jobs.diagnosis.errors import (
    CannotStart,
    CommandNotFound,
    Diverged,
    ImageCannotBePulled,
    ImagePullTimeout,
    NodeLost,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    TrainJobDeadline,
    TrainJobError,
    TrainJobFailed,
)
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.logs.log_patterns import patterns_in
from trainwright.jobs.state.progress import Divergence

_DEADLINES: dict[str, type[TrainJobDeadline]] = {
    kind.__name__: kind
    for kind in (QueueTimeout, StartTimeout, RunTimeout, ImagePullTimeout, ImageCannotBePulled, CommandNotFound, CannotStart)
}


def verdict_on(error: BaseException) -> Verdict | None:
    """Return the verdict with which a client gives up a job; None for an error that says nothing about the job.

    A job that exceeded a deadline is resumed by a retry, as its training may only have needed more time.
    """
    kind = type(error).__name__
    if isinstance(error, Diverged):
        return Verdict(kind, error.report.describe(), kind, now(), details=error.report.as_dict())
    if isinstance(error, TrainJobFailed) and error.report is not None:
        report = error.report
        return Verdict(report.reason, report.message, kind, now(), tuple(map(_failed_pod, report.pods)))
    if isinstance(error, TrainJobDeadline):
        details = {"what": error.what}
        return Verdict(kind, str(error.args[0]), kind, now(), lines=error.lines, details=details, resumable=True)
    return None


def error_of(trainjob: Obj, verdict: Verdict) -> TrainJobError | None:
    """Return the error of a job that was given up for a deadline or a divergence; None for a failure, whose report tells it."""
    error: TrainJobError | None = None
    if verdict.resumable:
        what, kind = str(verdict.details.get("what") or ""), _DEADLINES.get(verdict.error, TrainJobDeadline)
        is_lost = verdict.error == NodeLost.__name__
        error = NodeLost(verdict.message) if is_lost else kind(verdict.message, what, verdict.lines)
    elif verdict.error == Diverged.__name__ and (report := _divergence(verdict)) is not None:
        error = Diverged(trainjob, report)
    if error is not None:
        error.is_verdict = True
    return error


def report_of_verdict(trainjob: Obj, verdict: Verdict) -> FailureReport:
    """Return the report of a job that was given up: its pods are gone."""
    return FailureReport(
        namespace=namespace_of(trainjob),
        name=name_of(trainjob),
        uid=uid_of(trainjob),
        reason=verdict.reason,
        message=verdict.message,
        pods=tuple(map(_pod_failure, verdict.pods)),
        lines=verdict.lines,
    )


def _divergence(verdict: Verdict) -> Divergence | None:
    try:
        return Divergence.from_dict(verdict.details)
    except TypeError:  # written by somebody else
        return None


def _failed_pod(failure: PodFailure) -> FailedPod:
    return FailedPod(
        failure.name,
        failure.step,
        failure.index,
        failure.container,
        failure.exit_code,
        failure.reason,
        failure.message,
        failure.disruption,
        failure.failed_probe,
        failure.memory_limit,
        failure.lines,
    )


def _pod_failure(pod: FailedPod) -> PodFailure:
    return PodFailure(
        pod.name,
        pod.step,
        pod.index,
        container=pod.container,
        exit_code=pod.exit_code,
        reason=pod.reason,
        message=pod.message,
        disruption=pod.disruption,
        failed_probe=pod.failed_probe,
        memory_limit=pod.memory_limit,
        is_gone=True,
        lines=pod.lines,
        log_patterns=patterns_in(pod.lines),
    )
