"""Chooses the error class of a failed or overdue job from its report, by the pod that failed first."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import datetime

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, name_of
from trainwright.api.phase import verdict_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.diagnosis.errors import (
    CannotRun,
    DeadlineExceeded,
    ImagePullFailure,
    OutOfMemory,
    Preempted,
    StepFailed,
    TrainJobDeadline,
    TrainJobError,
    TrainJobFailed,
    deadline_error,
    error_of,
)
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.diagnosis.report import last_seen, report_of, usage_summary
from trainwright.jobs.logs.log_excerpt import LOG_LINES, READ_LINES, final_state, log_tail, shortened
from trainwright.jobs.logs.log_options import LogSelector
from trainwright.jobs.logs.read_logs import read_logs
from trainwright.jobs.state.pod_history import PodHistory

log = logging.getLogger(__name__)


_RECOVERED_SECONDS = 900
"""Time after which a container that has been restarted no longer counts as failing: more than the longest back-off of a kubelet."""
STOPPED, STOPPED_FOR_GOOD = "FailedTooOften", "CannotRun"
"""Reasons in the report of a job that the client stops."""


def end_of(cluster: Cluster, trainjob: Obj, history: PodHistory | None = None) -> TrainJobError:
    """Return the error of a job whose phase is Failed: of one that its client has given up, the same one that this client had.

    Otherwise as `failure_of`.
    """
    verdict = verdict_of(trainjob)
    given_up = error_of(trainjob, verdict) if verdict is not None else None
    return given_up or failure_of(cluster, trainjob, history)


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


def deadline_of(cluster: Cluster, trainjob: Obj, message: str, what: str, history: PodHistory | None = None) -> TrainJobDeadline:
    """Return the error of an expired deadline, with the last observed state.

    Of a job that runs it has the pod that fails, and the last lines of that pod's log, else those of rank 0. `history` is what was
    observed of its pods.
    """
    seen, reason = last_seen(cluster, trainjob)
    may_run = what in ("run", "total")
    failing = _failing_pod(cluster, trainjob, history) if may_run else None
    usage = usage_summary(cluster, trainjob) if may_run else ""
    named = f"pod {failing.name} {failing.describe()}" if failing is not None else ""
    text = "; ".join(filter(None, (message, named, seen, usage)))
    lines = list(failing.lines) if failing is not None else _last_lines(cluster, trainjob) if may_run else []
    return deadline_error(text, what, image_missing=reason is not None and reason.part == "image", lines=lines)


def _failing_pod(cluster: Cluster, trainjob: Obj, history: PodHistory | None) -> PodFailure | None:
    """Return the pod of a running job that has failed last and was not replaced; None if all have run for a while since."""
    report = report_of(cluster, trainjob, history=history)
    earliest = time.time() - _RECOVERED_SECONDS
    return next((pod for pod in report.pods if pod.is_own_failure and not pod.is_gone and _epoch(pod.finished) > earliest), None)


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0


def _last_lines(cluster: Cluster, trainjob: Obj) -> list[str]:
    """Return the last lines of rank 0; none if its log cannot be read."""
    try:
        lines = [shortened(final_state(line.text)) for line in read_logs(cluster, trainjob, LogSelector(tail=READ_LINES))]
    except ApiError as error:  # the deadline is reported all the same
        log.debug("event=last_lines_not_read name=%s error=%s", name_of(trainjob), error.message)
        return []
    return log_tail(lines, LOG_LINES)


def error_class(report: FailureReport) -> type[TrainJobFailed]:
    """Return the error class for a report. Pure."""
    cause = report.cause
    if report.exceeded_deadline:  # before any cause: pods were stopped by it
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
