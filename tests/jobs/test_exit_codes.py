"""Which errors are known to come again in every try, and that each says whether another may help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainwright.api.errors import ApiError, Forbidden, Invalid, ServiceUnavailable, TooManyRequests, Unauthorized
from trainwright.cluster import NoCluster
from trainwright.cluster.refusals import AccessDenied, Permission
from trainwright.jobs import IncompatibleRuntime, RuntimeNotFound, TrainJobNameTaken
from trainwright.jobs.diagnosis.errors import (
    Cancelled,
    ImagePullFailure,
    OutOfMemory,
    Preempted,
    QueueTimeout,
    RunTimeout,
    StepFailed,
    TrainJobDeleted,
)
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.logs.log_excerpt import LOG_PATTERNS

DENIED = 'admission webhook "x" denied the request: no'
RIGHT = Permission("create", "trainjobs.trainer.kubeflow.org", "default")


def failed(*log_patterns: str) -> StepFailed:
    pod = PodFailure("p", "node", 0, log_patterns=tuple(sign for sign in LOG_PATTERNS if sign.name in log_patterns))
    report = FailureReport("default", "a", "u", "r", "m")
    return StepFailed("", {}, replace(report, pods=(pod,)))


@pytest.mark.parametrize(
    ("error", "retryable", "in_vain"),
    [
        (failed(), False, False),
        (failed("nccl-timeout"), True, False),
        (failed("rendezvous-timeout", "disk-full"), False, True),
        (failed("data-loader-shared-memory"), False, True),
        (failed("data-loader-timeout"), False, False),
        (OutOfMemory("", {}), False, True),
        (Preempted("", {}), True, False),
        (ImagePullFailure("", {}), False, True),
        (QueueTimeout("", "queue"), True, False),
        (RunTimeout("", "run"), True, False),
        (TrainJobDeleted(""), True, False),
        (Cancelled(""), True, False),
        (TrainJobNameTaken(""), False, True),
        (RuntimeNotFound(""), False, True),
        (IncompatibleRuntime(""), False, True),
        (Invalid(""), False, True),
        (AccessDenied("", RIGHT), False, True),
        (Forbidden("exceeded quota"), False, False),
        (Forbidden(DENIED), False, True),
        (Unauthorized(""), False, False),
        (ServiceUnavailable(""), True, False),
        (TooManyRequests(""), True, False),
        (ApiError(""), True, False),
        (NoCluster(""), False, False),
    ],
)
def test_whether_another_try_may_help(error: Any, retryable: bool, in_vain: bool) -> None:
    assert (error.retryable, is_permanent(error)) == (retryable, in_vain)
