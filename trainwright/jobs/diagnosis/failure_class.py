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
from trainwright.jobs.diagnosis.report import FailureReport, is_waiting_for_image, last_seen, report_of, usage_summary


def failure_of(cluster: Cluster, trainjob: Obj) -> TrainJobFailed:
    """Return the error of a failed job, with its report."""
    report = report_of(cluster, trainjob)
    return error_class(report)(str(report), trainjob, report)


def deadline_of(cluster: Cluster, trainjob: Obj, message: str, what: str, *, after: str = "") -> TrainJobDeadline:
    """Return the error of an expired deadline, with the last observed state and what was done `after` it."""
    image_missing = what == "start" and is_waiting_for_image(cluster, trainjob)
    used = usage_summary(cluster, trainjob) if what in ("run", "total") else ""
    text = "; ".join(filter(None, (message, last_seen(cluster, trainjob), used, after)))
    return deadline_error(text, what, image_missing=image_missing)


def error_class(report: FailureReport) -> type[TrainJobFailed]:
    """Return the error class for a report. Pure."""
    cause = report.cause
    if report.reason == "DeadlineExceeded":
        return DeadlineExceeded
    if cause is None:
        no_image = report.waiting is not None and report.waiting[1].part == "image"
        return ImagePullFailure if no_image else TrainJobFailed
    if cause.out_of_memory:
        return OutOfMemory
    if cause.disruption and not cause.exceeded_own_limit:
        return Preempted
    return StepFailed
