"""What the errors of a job mean to whoever decides what to do next: whether another try is in vain, and an exit code for scripts."""

from __future__ import annotations

import enum

from trainwright.api.errors import ApiError, BadRequest, Forbidden, Invalid, Unauthorized
from trainwright.cluster import NoCluster
from trainwright.cluster.access import AccessDenied, breaks_a_rule
from trainwright.jobs.errors import (
    ImagePullFailed,
    OutOfMemory,
    Preempted,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    StepFailed,
    TrainJobDeadline,
    TrainJobDeleted,
    TrainJobFailed,
    TrainJobNameTaken,
)


class ExitCode(enum.IntEnum):
    """Of the commands that submit and wait, and of the component `train`. A number keeps its meaning for ever."""

    succeeded = 0
    other = 1
    bad_input = 2
    unreachable = 3
    forbidden = 4
    failed = 10
    out_of_memory = 11
    preempted = 12
    image_pull_failed = 13
    queue_timeout = 20
    start_timeout = 21
    run_timeout = 22
    timeout = 23
    deleted = 30
    interrupted = 130


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (OutOfMemory, ExitCode.out_of_memory),
    (Preempted, ExitCode.preempted),
    (ImagePullFailed, ExitCode.image_pull_failed),
    (QueueTimeout, ExitCode.queue_timeout),
    (StartTimeout, ExitCode.start_timeout),
    (RunTimeout, ExitCode.run_timeout),
    (TrainJobDeadline, ExitCode.timeout),
    (TrainJobFailed, ExitCode.failed),
    (TrainJobDeleted, ExitCode.deleted),
    (Invalid, ExitCode.bad_input),
    (Forbidden, ExitCode.forbidden),
    (Unauthorized, ExitCode.forbidden),
    (NoCluster, ExitCode.unreachable),
    (ValueError, ExitCode.bad_input),
)
"""The first that an error is one of; a RunTimeout may be a TrainJobFailed, an ImagePullFailed a StartTimeout."""
_IN_VAIN = (
    OutOfMemory,
    ImagePullFailed,
    TrainJobNameTaken,
    Invalid,
    BadRequest,
    AccessDenied,
    ValueError,
)
"""A Forbidden that names no missing right may be a quota, which others give back."""

_LASTING_SIGNS = frozenset({"data-loader-shared-memory", "disk-full"})


def exit_code_of(error: BaseException) -> ExitCode:
    """The code that a program ends with for this error."""
    if breaks_a_rule(error):
        return ExitCode.bad_input
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.unreachable if isinstance(error, ApiError) and error.retryable else ExitCode.other


def is_in_vain(error: BaseException) -> bool:
    """Whether the same request is known to end the same way: whoever has tries left by a count of his own may save them.

    Less than `not retryable`: a program that failed for a reason nobody knows may have one that passes.
    """
    if isinstance(error, StepFailed) and error.report is not None:
        return isinstance(error, OutOfMemory) or any(sign.name in _LASTING_SIGNS for sign in error.report.signs)
    return (isinstance(error, _IN_VAIN) and not getattr(error, "retryable", False)) or breaks_a_rule(error)
