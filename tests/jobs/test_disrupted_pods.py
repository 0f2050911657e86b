"""Pods that were taken away and are gone: their events decide how the job has failed, where nothing else came first."""

from __future__ import annotations

from typing import Any

import pytest
from factories import container_status, pod, terminated

from trainwright.api.objects import name_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import OutOfMemory, Preempted, StepFailed, TrainJobFailed
from trainwright.jobs.diagnosis.causes import disrupted_pods
from trainwright.jobs.diagnosis.failure_class import failure_of

PREEMPTED = ("Preempted", "Preempted by pod 7a on node n")
EVICTED = ("TaintManagerEviction", "Marking for deletion Pod default/x")


@pytest.fixture
def failed_job(job: dict[str, Any], set_status: Any) -> dict[str, Any]:
    counts = {"name": "node", "ready": 0, "succeeded": 0, "failed": 1, "active": 0, "suspended": 0}
    failed: dict[str, Any] = set_status(job, "Failed", jobsStatus=[counts])
    return failed


def event(about: str, reason: str, message: str, at: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.{reason.lower()}.{at[-3:-1]}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": about, "namespace": "default"},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "eventTime": at,
        "reportingComponent": "default-scheduler",
        "reportingInstance": "default-scheduler-0",
        "action": "Preempting",
    }


def ended(code: int, at: str, reason: str = "Error") -> dict[str, Any]:
    return {"phase": "Failed", "containerStatuses": [container_status(terminated(code, reason, at))]}


# The first pod is gone with this event (seconds of 2100), the second ended with this code at that second.
@pytest.mark.parametrize(
    ("told", "peer", "expected"),
    [
        ((*PREEMPTED, 10), None, Preempted),
        ((*EVICTED, 10), None, Preempted),
        ((*PREEMPTED, 10), (1, 12, "Error"), Preempted),
        ((*PREEMPTED, 10), (143, 9, "Error"), Preempted),
        ((*PREEMPTED, 10), (1, 5, "Error"), StepFailed),
        ((*PREEMPTED, 10), (137, 5, "OOMKilled"), OutOfMemory),
        (("TaintManagerEviction", "Cancelling deletion of Pod default/x", 10), None, TrainJobFailed),
        (("Scheduled", "Successfully assigned", 10), None, TrainJobFailed),
    ],
)
def test_failure_type_follows_the_first_pod_to_end(
    cluster: EmbeddedCluster,
    failed_job: dict[str, Any],
    add_pod: Any,
    told: tuple[str, str, int],
    peer: tuple[int, int, str] | None,
    expected: type[TrainJobFailed],
) -> None:
    reason, message, second = told
    cluster.create(event(f"{name_of(failed_job)}-node-0-0-zzzzz", reason, message, f"2100-01-01T00:00:{second:02}.000000Z"))
    if peer:
        code, at, why = peer
        add_pod(failed_job, 1, **ended(code, f"2100-01-01T00:00:{at:02}Z", why))
    failure = failure_of(cluster, failed_job)
    assert type(failure) is expected
    if expected is Preempted:
        assert failure.report is not None
        cause = failure.report.cause
        assert cause is not None
        assert (cause.step, cause.index, cause.message) == ("node", 0, message)
        assert f"pod {name_of(failed_job)}-node-0-0-zzzzz (step node) was" in str(failure)


def node_pod(name: str, created: str) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": name.split("-")[-2]}
    return pod(name, labels=labels, metadata={"creationTimestamp": created})


@pytest.mark.parametrize(
    ("pods", "gone"),
    [
        ([], ["j-node-0-0-aaaaa"]),
        ([("j-node-0-1-bbbbb", "00")], ["j-node-0-0-aaaaa"]),
        ([("j-node-0-0-aaaaa", "00")], []),  # it is still there, and tells for itself
        ([("j-node-0-0-ccccc", "11"), ("j-node-0-1-bbbbb", "00")], []),  # its Job has replaced it
        ([("j-node-0-0-ccccc", "20"), ("j-node-0-1-ddddd", "20")], []),  # its JobSet began anew since
    ],
)
def test_only_those_of_the_last_attempt_that_nobody_replaced_count(pods: list[tuple[str, str]], gone: list[str]) -> None:
    events = [event("j-node-0-0-aaaaa", *PREEMPTED, "2026-01-01T00:00:10Z")]
    there = [node_pod(name, f"2026-01-01T00:00:{second}Z") for name, second in pods]
    assert [failure.name for failure in disrupted_pods({"metadata": {"name": "j"}}, events, there)] == gone
