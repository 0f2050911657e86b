"""Which errors are known to come again in every try, and that each says whether another may help."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from trainwright.api.errors import ApiError, Forbidden, Invalid, ServiceUnavailable, TooManyRequests, Unauthorized
from trainwright.cluster import NoCluster
from trainwright.cluster.access import AccessDenied, Right
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, IncompatibleRuntime, RuntimeNotFound, TrainJobNameTaken, submit_or_adopt
from trainwright.jobs.errors import FailedWithoutImage, JobDeleted, OutOfMemory, Preempted, QueueTimeout, RunTimeout, StepFailed
from trainwright.jobs.log_signs import SIGNS
from trainwright.jobs.outcomes import is_in_vain
from trainwright.jobs.pod_failure import PodFailure
from trainwright.jobs.report import FailureReport
from trainwright.jobs.run import Cancelled
from trainwright.jobs.verdict import deadline_of

DENIED = 'admission webhook "x" denied the request: no'
RIGHT = Right("create", "trainjobs.trainer.kubeflow.org", "default")


def failed(*signs: str) -> StepFailed:
    pod = PodFailure("p", "node", 0, signs=tuple(sign for sign in SIGNS if sign.name in signs))
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
        (FailedWithoutImage("", {}), False, True),
        (QueueTimeout("", "queue"), True, False),
        (RunTimeout("", "run"), True, False),
        (JobDeleted(""), True, False),
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
    assert (error.retryable, is_in_vain(error)) == (retryable, in_vain)


def test_a_run_that_took_too_long_says_what_it_has_used(cluster: EmbeddedCluster, request_of: Any, add_pod: Any) -> None:
    job = submit_or_adopt(cluster, request_of(), Identity("o", "r", "s"), "default").trainjob
    add_pod(job, phase="Running", startTime=datetime.now(UTC).replace(year=2020).strftime("%Y-%m-%dT%H:%M:%SZ"))
    told = str(deadline_of(cluster, job, "too long", "run", after="it is suspended"))
    assert told.startswith("too long; last seen: no pod waits and no warning was written; used: ")
    assert told.endswith(" node-hours; it is suspended")
