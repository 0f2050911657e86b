"""Chooses the error class of a failed or overdue job from its report, by the pod that failed first."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import (
    DeadlineExceeded,
    ImagePullFailure,
    OutOfMemory,
    Preempted,
    StepFailed,
    TrainJobDeadline,
    TrainJobFailed,
    deadline_error,
)
from trainwright.jobs.diagnosis.report import FailureReport, last_seen, report_of, usage_summary
from trainwright.jobs.state.pod_history import PodHistory


def failure_of(cluster: Cluster, trainjob: Obj, history: PodHistory | None = None) -> TrainJobFailed:
    """Return the error of a failed job, with its report; `history` is what was observed of its pods while it ran."""
    report = report_of(cluster, trainjob, history=history)
    return error_class(report)(str(report), trainjob, report)


def deadline_of(cluster: Cluster, trainjob: Obj, message: str, what: str, *, after: str = "") -> TrainJobDeadline:
    """Return the error of an expired deadline, with the last observed state and what was done `after` it."""
    seen, reason = last_seen(cluster, trainjob)
    used = usage_summary(cluster, trainjob) if what in ("run", "total") else ""
    text = "; ".join(filter(None, (message, seen, used, after)))
    return deadline_error(text, what, image_missing=reason is not None and reason.part == "image")


def error_class(report: FailureReport) -> type[TrainJobFailed]:
    """Return the error class for a report. Pure."""
    cause = report.cause
    if report.exceeded_deadline:
        return DeadlineExceeded
    if cause is None:
        return ImagePullFailure if report.waiting is not None and report.waiting.part == "image" else TrainJobFailed
    if cause.out_of_memory:
        return OutOfMemory
    if cause.disruption and not cause.exceeded_own_limit:
        return Preempted
    return StepFailed
