"""Which error a failed or overdue job is raised as: the report decides, by the pod that failed first."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.errors import (
    DeadlineExceeded,
    FailedWithoutImage,
    OutOfMemory,
    Preempted,
    StepFailed,
    TrainJobDeadline,
    TrainJobFailed,
    deadline_passed,
)
from trainwright.jobs.report import FailureReport, last_seen, report_of, used_so_far, waits_for_image


def failure_of(cluster: Cluster, trainjob: Obj) -> TrainJobFailed:
    """The error of a job that has failed, with its report; not raised here."""
    report = report_of(cluster, trainjob)
    return error_class(report)(str(report), trainjob, report)


def deadline_of(cluster: Cluster, trainjob: Obj, message: str, what: str, *, after: str = "") -> TrainJobDeadline:
    """The error of a deadline that has passed, with what was seen last and what was done `after` it; not raised here."""
    without_image = what == "start" and waits_for_image(cluster, trainjob)
    used = used_so_far(cluster, trainjob) if what in ("run", "total") else ""
    told = "; ".join(filter(None, (message, last_seen(cluster, trainjob), used, after)))
    return deadline_passed(told, what, without_image=without_image)


def error_class(report: FailureReport) -> type[TrainJobFailed]:
    """Pure."""
    cause = report.cause
    if report.reason == "DeadlineExceeded":
        return DeadlineExceeded
    if cause is None:
        no_image = report.waiting is not None and report.waiting[1].part == "image"
        return FailedWithoutImage if no_image else TrainJobFailed
    if cause.out_of_memory:
        return OutOfMemory
    if cause.taken and not cause.over_its_limit:
        return Preempted
    return StepFailed
