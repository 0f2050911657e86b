"""Classifies the errors of a job for retry decisions: whether a retry cannot succeed, and an exit code for scripts."""

from __future__ import annotations

import enum

from trainwright.api.errors import ApiError, BadRequest, Forbidden, Invalid, Unauthorized
from trainwright.cluster import NoCluster
from trainwright.cluster.answers import CannotConnect
from trainwright.cluster.refusals import AccessDenied, is_admission_denial, is_admission_rejection, is_missing_namespace
from trainwright.jobs.diagnosis.errors import (
    CannotRun,
    CannotStart,
    CommandNotFound,
    Diverged,
    ImagePullFailed,
    NodeLost,
    OutOfMemory,
    Preempted,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    StepFailed,
    StoppedEarly,
    TrainJobDeadline,
    TrainJobDeleted,
    TrainJobFailed,
    TrainJobNameTaken,
)
from trainwright.jobs.logs.training_log import UnreportableResult
from trainwright.submission.jobs_client import UnknownMode


class ExitCode(enum.IntEnum):
    """Exit codes of the commands that submit and wait, and of the component `train`. The meaning of a number never changes."""

    succeeded = 0
    other = 1
    bad_input = 2
    unreachable = 3
    forbidden = 4
    failed = 10
    out_of_memory = 11
    preempted = 12
    image_pull_failed = 13
    diverged = 14
    cannot_run = 15
    queue_timeout = 20
    start_timeout = 21
    run_timeout = 22
    timeout = 23
    deleted = 30
    interrupted = 130


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (OutOfMemory, ExitCode.out_of_memory),
    (CannotRun, ExitCode.cannot_run),
    (Preempted, ExitCode.preempted),
    (NodeLost, ExitCode.preempted),
    (ImagePullFailed, ExitCode.image_pull_failed),
    (Diverged, ExitCode.diverged),
    (QueueTimeout, ExitCode.queue_timeout),
    (CommandNotFound, ExitCode.failed),
    (StartTimeout, ExitCode.start_timeout),
    (RunTimeout, ExitCode.run_timeout),
    (TrainJobDeadline, ExitCode.timeout),
    (TrainJobFailed, ExitCode.failed),
    (UnreportableResult, ExitCode.failed),
    (TrainJobDeleted, ExitCode.deleted),
    (Invalid, ExitCode.bad_input),
    (Forbidden, ExitCode.forbidden),
    (Unauthorized, ExitCode.forbidden),
    (UnknownMode, ExitCode.bad_input),
    (NoCluster, ExitCode.unreachable),
    (CannotConnect, ExitCode.unreachable),
    (ValueError, ExitCode.bad_input),
)
"""The first match counts: a RunTimeout may also be a TrainJobFailed, and an ImagePullFailed a StartTimeout."""
_PERMANENT_ERRORS = (
    OutOfMemory,
    CannotStart,
    Diverged,
    ImagePullFailed,
    StoppedEarly,
    TrainJobNameTaken,
    Invalid,
    BadRequest,
    AccessDenied,
    CannotConnect,
    ValueError,
)
"""Does not contain Forbidden: without a missing permission it may be an exceeded quota, which can be freed."""

_PERMANENT_PATTERNS = frozenset({"data-loader-shared-memory", "disk-full"})


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    if is_admission_rejection(error) or is_missing_namespace(error):
        return ExitCode.bad_input
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.unreachable if isinstance(error, ApiError) and error.retryable else ExitCode.other


def is_permanent(error: BaseException) -> bool:
    """Whether a retry of the same request cannot succeed, so that an orchestrator need not use its remaining retries.

    Narrower than `not retryable`: a failure of unknown cause is not retryable, but may be transient.
    """
    if isinstance(error, OutOfMemory | CannotRun):  # the same program would fail at the same place
        return True
    if isinstance(error, StepFailed) and error.report is not None:
        return any(pattern.name in _PERMANENT_PATTERNS for pattern in error.report.log_patterns)
    if is_missing_namespace(error) or is_admission_denial(error):
        return True
    return isinstance(error, _PERMANENT_ERRORS) and not getattr(error, "retryable", False)
