"""Chooses the error class of a failed or overdue job from its report, by the pod that failed first."""

from __future__ import annotations

import logging
from dataclasses import replace

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import (
    CannotRun,
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
from trainwright.jobs.logs.failure_log_tail import LOG_LINES
from trainwright.jobs.logs.follow_logs import LogSelector, read_logs
from trainwright.jobs.state.pod_history import PodHistory

log = logging.getLogger(__name__)


STOPPED, STOPPED_FOR_GOOD = "FailedTooOften", "CannotRun"
"""Reasons in the report of a job that the client stops."""


def failure_of(cluster: Cluster, trainjob: Obj, history: PodHistory | None = None, *, stopped: str = "") -> TrainJobFailed:
    """Return the error of a failed job, with its report; `history` is what was observed of its pods while it ran.

    `stopped` tells why a job that has not failed by itself is to be stopped.
    """
    report = report_of(cluster, trainjob, history=history)
    if stopped:
        report = replace(report, reason=STOPPED_FOR_GOOD if report.cannot_run else STOPPED, message=stopped)
    error = error_class(report)(str(report), trainjob, report)
    error.is_unfinished = bool(stopped)
    return error


def deadline_of(cluster: Cluster, trainjob: Obj, message: str, what: str) -> TrainJobDeadline:
    """Return the error of an expired deadline, with the last observed state and, of a job that runs, the last lines of its log."""
    seen, reason = last_seen(cluster, trainjob)
    may_run = what in ("run", "total")
    text = "; ".join(filter(None, (message, seen, usage_summary(cluster, trainjob) if may_run else "")))
    lines = _last_lines(cluster, trainjob) if may_run else []
    return deadline_error(text, what, image_missing=reason is not None and reason.part == "image", lines=lines)


def _last_lines(cluster: Cluster, trainjob: Obj) -> list[str]:
    """Return the last lines of rank 0; none if its log cannot be read."""
    try:
        return [line.text for line in read_logs(cluster, trainjob, LogSelector(tail=LOG_LINES))]
    except ApiError as error:
        log.debug("event=last_lines_not_read name=%s error=%s", name_of(trainjob), error.message)
        return []


def error_class(report: FailureReport) -> type[TrainJobFailed]:
    """Return the error class for a report. Pure."""
    cause = report.cause
    if report.exceeded_deadline:
        return DeadlineExceeded
    if report.cannot_run:
        return CannotRun
    if cause is None:
        return ImagePullFailure if report.waiting is not None and report.waiting.part == "image" else TrainJobFailed
    if cause.out_of_memory:
        return OutOfMemory
    if cause.disruption and not cause.exceeded_own_limit:
        return Preempted
    return StepFailed
