"""Which error is raised for what, whether a retry may help, and the report as data."""

from __future__ import annotations

from typing import Any

import pytest
from factories import container_status
from support.scripted_logs import WithTexts

from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import (
    ImagePullFailed,
    OutOfMemory,
    Preempted,
    StepFailed,
    TrainJobFailed,
)
from trainwright.jobs.diagnosis.errors import CannotRun
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.diagnosis.failure_class import failure_of
from trainwright.runtimes.launch import CANNOT_RUN_MARK

PULLING = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return container_status(state, **more)


def exited(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    ended = {"exitCode": code, "reason": reason, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T01:00:00Z"}
    ended |= {"message": message} if message else {}
    return {"phase": "Failed", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [container({"terminated": ended})]}


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"phase": "Failed", "conditions": [condition]}


@pytest.mark.parametrize(
    ("status", "log", "error", "retryable", "words"),
    [
        (exited(1), "ValueError: x", StepFailed, False, "exited 1"),
        (exited(137, "OOMKilled"), "", OutOfMemory, False, "out of memory"),
        (
            exited(15, message=f"{CANNOT_RUN_MARK}no module x"),
            "",
            CannotRun,
            False,
            "exited 15: trainwright cannot run this program: no",
        ),
        (
            exited(15),
            f"out\n{CANNOT_RUN_MARK}no module x\nout",
            CannotRun,
            False,
            "exited 15: trainwright cannot run this program: no",
        ),
        (exited(15), "no module x", StepFailed, False, "exited 15"),
        (exited(15, message="no module x"), "", StepFailed, False, "exited 15: no module x"),
        (exited(1, message=f"{CANNOT_RUN_MARK}no module x"), "", StepFailed, False, "exited 1"),
        (exited(1), "torch.OutOfMemoryError: CUDA out of memory.", OutOfMemory, False, "the GPU was out of memory"),
        (exited(1), "Watchdog caught collective operation timeout", StepFailed, True, "NCCL timed out"),
        (exited(1), "RendezvousTimeoutError", StepFailed, True, "did not find each other"),
        (exited(1), "RuntimeError: DataLoader timed out after 30 seconds", StepFailed, False, "the data loader timed out"),
        (disrupted("PreemptionByScheduler", "for a higher priority"), "", Preempted, True, "preempted, PreemptionByScheduler"),
        (disrupted("DeletionByTaintManager"), "", Preempted, True, "lost with its node"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "", Preempted, True, "evicted, Evicted: low on"),
        ({"phase": "Failed", "reason": "Evicted", "message": "usage exceeds the limit"}, "", StepFailed, False, "evicted"),
        ({"phase": "Pending", "containerStatuses": [container(PULLING)]}, "", ImagePullFailed, False, "ImagePullBackOff"),
    ],
)
def test_the_cause_decides_the_error(
    cluster: EmbeddedCluster,
    job: dict[str, Any],
    set_status: Any,
    add_pod: Any,
    status: Any,
    log: str,
    error: type[TrainJobFailed],
    retryable: bool,
    words: str,
) -> None:
    failed = set_status(job, "Failed")
    add_pod(failed, **status)
    raised = failure_of(WithTexts(cluster, log), failed)
    assert isinstance(raised, error)
    assert isinstance(raised, TrainJobFailed)
    assert isinstance(raised, CannotRun) is (error is CannotRun)
    assert is_permanent(raised) is (error in (CannotRun, OutOfMemory, ImagePullFailed))
    assert raised.retryable is retryable
    assert words in str(raised)
    assert raised.report is not None
    assert str(raised.report) == str(raised)
