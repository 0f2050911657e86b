"""Which errors are known to come again in every try, and that each says whether another may help."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from factories import program_request

from trainwright.api.errors import ApiError, Forbidden, Invalid, ServiceUnavailable, TooManyRequests, Unauthorized
from trainwright.cluster import NoCluster
from trainwright.cluster.permissions import AccessDenied, Permission
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, IncompatibleRuntime, RuntimeNotFound, Submission, TrainJobNameTaken, submit_or_adopt
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
from trainwright.jobs.diagnosis.failure_class import deadline_of
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.logs.log_patterns import LOG_PATTERNS

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


def test_a_run_that_took_too_long_says_what_it_has_used(cluster: EmbeddedCluster, add_pod: Any) -> None:
    job = submit_or_adopt(Submission(cluster, program_request(), Identity("o", "r", "s"), "default")).trainjob
    add_pod(job, phase="Running", startTime=datetime.now(UTC).replace(year=2020).strftime("%Y-%m-%dT%H:%M:%SZ"))
    error = deadline_of(cluster, job, "too long", "run")
    error.add_outcome("it is suspended")
    told = str(error)
    assert told.startswith("too long; last seen: no pod is waiting and there is no warning event; used: ")
    assert told.endswith(" node-hours; it is suspended")
