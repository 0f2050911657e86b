"""Which error is raised for what, whether a retry may help, and the report as data."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from factories import container_status, event, jobset, program_request
from support.scripted_logs import WithTexts

from trainwright.api.kinds import JOBSET
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import (
    Deadlines,
    Identity,
    ImagePullFailed,
    OutOfMemory,
    Preempted,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    StepFailed,
    Submission,
    TrainJobDeadline,
    TrainJobFailed,
    submit_or_adopt,
    wait_for,
)
from trainwright.jobs.diagnosis.errors import CannotRun
from trainwright.jobs.diagnosis.exit_codes import is_permanent
from trainwright.jobs.diagnosis.failure_class import failure_of
from trainwright.jobs.diagnosis.report import report_of
from trainwright.jobs.wait.job_observer import WaitSettings
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


def test_the_clusters_own_deadline_is_a_run_timeout_of_a_failed_job(
    cluster: EmbeddedCluster, job: dict[str, Any], set_status: Any
) -> None:
    failed = set_status(job, "Failed")
    failed["status"]["conditions"][0]["reason"] = "DeadlineExceeded"
    raised = failure_of(cluster, failed)
    assert isinstance(raised, TrainJobFailed)
    assert isinstance(raised, RunTimeout)
    assert (raised.what, raised.retryable) == ("run", True)


@pytest.mark.parametrize(
    ("deadlines", "suspend", "status", "errors", "retryable"),
    [
        (Deadlines(queue=0.01), True, {}, (QueueTimeout,), True),
        (Deadlines(start=0.01), False, {}, (StartTimeout,), True),
        (Deadlines(start=0.01), False, {"containerStatuses": [container(PULLING)]}, (StartTimeout, ImagePullFailed), False),
    ],
)
def test_a_deadline_has_an_error_of_its_own(
    cluster: EmbeddedCluster,
    add_pod: Any,
    deadlines: Deadlines,
    suspend: bool,
    status: Any,
    errors: tuple[type[Exception], ...],
    retryable: bool,
) -> None:
    job = submit_or_adopt(Submission(cluster, program_request(), Identity("o", "r", "s"), "default")).trainjob
    job["spec"]["suspend"] = suspend
    cluster.update(job)
    add_pod(job, phase="Pending", **status)
    with pytest.raises(TrainJobDeadline) as raised:
        wait_for(cluster, job, WaitSettings(deadlines=deadlines))
    assert not isinstance(raised.value, TrainJobFailed)
    assert all(isinstance(raised.value, error) for error in errors)
    assert raised.value.retryable is retryable


def test_queue_timeout_reports_the_reason_of_kueue(cluster: EmbeddedCluster) -> None:
    request = program_request(labels={"kueue.x-k8s.io/queue-name": "gpus"})
    job = submit_or_adopt(Submission(cluster, request, Identity("o", "r", "s"), "default")).trainjob
    job["spec"]["suspend"] = True
    job = cluster.update(job)
    name = job["metadata"]["name"]
    for about, message in ((f"trainjob-{name}-ab1de", "insufficient quota for gpu"), (f"trainjob-{name}-2-ab1de", "another's")):
        cluster.create(event("Workload", about, "Pending", message, type="Warning"))
    with pytest.raises(QueueTimeout, match="queue: Pending: insufficient quota for gpu"):
        wait_for(cluster, job, WaitSettings(deadlines=Deadlines(queue=0.01)))


def test_the_report_as_data(cluster: EmbeddedCluster, job: dict[str, Any], set_status: Any, add_pod: Any) -> None:
    failed = set_status(job, "Failed")
    name = failed["metadata"]["name"]
    cluster.create(jobset(name, failurePolicy={"maxRestarts": 3}))
    ended = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": "3 of 3"}
    ended["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    cluster.patch(JOBSET, name, {"status": {"restarts": 3, "conditions": [ended]}}, "default", subresource="status")
    add_pod(failed, **exited(139))
    report = report_of(WithTexts(cluster, "boom"), failed, datetime(2026, 1, 1, 5, tzinfo=UTC))
    data = json.loads(json.dumps(report.as_dict()))
    assert data["condition"] == {"reason": "FailedReason", "message": "the Failed message"}
    assert data["jobset"] == "ReachedMaxRestarts: 3 of 3"
    assert data["restarts"] == {"used": 3, "allowed": 3}
    assert data["nodeHours"] == 1.0
    (pod,) = data["pods"]
    assert (pod["exitCode"], pod["signal"], pod["log"], pod["outOfMemory"]) == (139, 11, ["boom"], False)
    assert (data["headline"], str(report).splitlines()[2]) == (
        f"pod {pod['name']} exited 139 (ended by signal 11)",
        "JobSet: ReachedMaxRestarts: 3 of 3",
    )
    assert str(report).splitlines()[-1] == "used: 3 of 3 restarts, 1.00 node-hours"
