"""No pod of a job runs beside an earlier one of the same rank: resuming and resubmitting wait until stopped pods have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from factories import program_request
from support.cluster_without_controllers import current
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import POD, TRAINJOB, Kind
from trainwright.api.objects import name_of
from trainwright.api.phase import superseded
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.state import remaining_pods
from trainwright.jobs.state.cancel import CancelPolicy, cancel_job, cancel_version, suspend_job
from trainwright.jobs.state.waiters import lost_mark, renewal_patch
from trainwright.jobs.submit.adoption import resume_at_once
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.keep_lease import Waiter, WaiterOptions, renew_lease
from trainwright.jobs.wait.resume_job import ResumeOutcome, resume_job
from trainwright.jobs.wait.run_step import JobHandle, wait_step

STEP = Identity("o", "r", "s")
Job = dict[str, Any]


class Looks(DelegatingCluster):
    """Counts the looks at pods; `refuses` them as a role without permission does."""

    def __init__(self, cluster: EmbeddedCluster, *, refuses: bool = False):
        super().__init__(cluster)
        self.count, self._refuses = 0, refuses

    def list(self, kind: Kind, *arguments: Any, **more: Any) -> Any:
        if kind == POD:
            self.count += 1
            if self._refuses:
                raise Forbidden("not you")
        return super().list(kind, *arguments, **more)


@pytest.fixture
def looks(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr(remaining_pods, "_POLL_SECONDS", 0.01)
    return Looks(cluster)


@pytest.fixture
def suspended(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> Job:
    """A job of the step that is suspended, with a pod that still runs."""
    add_pod(job, phase="Running")
    cancel_job(cluster, job, CancelPolicy.suspend, timeout_seconds=None)
    return current(cluster, job)


def end_pods(cluster: EmbeddedCluster) -> None:
    for each in cluster.list(POD, "default").items:
        cluster.patch(POD, name_of(each), {"status": {"phase": "Failed"}}, "default", subresource="status")


def submit(cluster: Any, stop: threading.Event | None = None) -> Submitted:
    return submit_or_adopt(Submission(cluster, program_request(), STEP, "default"), stop=stop)


def resubmit_and_look(looks: Looks) -> tuple[ThreadPoolExecutor, Future[Submitted]]:
    pool = ThreadPoolExecutor(1)
    submitting = pool.submit(submit, looks)
    eventually(lambda: looks.count > 2, what="the pods are looked at several times")
    return pool, submitting


def test_adoption_resumes_only_after_the_last_pod(cluster: EmbeddedCluster, looks: Looks, suspended: Job) -> None:
    pool, submitting = resubmit_and_look(looks)
    assert current(cluster, suspended)["spec"]["suspend"] is True
    end_pods(cluster)
    assert submitting.result(10).trainjob["spec"]["suspend"] is False
    pool.shutdown()


def test_a_job_that_is_superseded_during_the_wait_stays_suspended(cluster: EmbeddedCluster, looks: Looks, suspended: Job) -> None:
    pool, submitting = resubmit_and_look(looks)
    suspend_job(cluster, suspended, superseded("its task was cleared"))
    end_pods(cluster)
    submitting.result(10)
    assert current(cluster, suspended)["spec"]["suspend"] is True
    pool.shutdown()


def test_pods_of_a_job_that_another_client_has_resumed_are_not_waited_for(
    cluster: EmbeddedCluster, looks: Looks, suspended: Job
) -> None:
    pool, submitting = resubmit_and_look(looks)
    resume_at_once(cluster, suspended)
    assert submitting.result(10).trainjob["spec"]["suspend"] is False
    pool.shutdown()


def test_a_next_job_does_not_start_beside_pods_of_one_that_was_resumed(
    cluster: EmbeddedCluster, looks: Looks, suspended: Job
) -> None:
    resume_at_once(cluster, suspended)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(remaining_pods.wait_until_pods_ended, looks, suspended, stop)
        eventually(lambda: looks.count > 2, what="the pods are looked at several times")
        stop.set()
        assert waiting.result(10) is False


def test_a_next_attempt_is_created_only_after_the_last_pod(
    cluster: EmbeddedCluster, looks: Looks, job: Job, add_pod: Any, set_status: Any
) -> None:
    add_pod(job, phase="Running")
    set_status(job, "Failed")
    pool, submitting = resubmit_and_look(looks)
    assert len(cluster.list(TRAINJOB, "default").items) == 1
    end_pods(cluster)
    assert submitting.result(10).attempt == 2
    pool.shutdown()


def test_a_pod_of_a_lost_node_is_waited_for_until_its_grace_and_a_margin_are_over(
    cluster: EmbeddedCluster, looks: Looks, suspended: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 7))
    monkeypatch.setattr(remaining_pods, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))  # of this module alone
    (pod,) = cluster.list(POD, "default").items
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert submit(looks).trainjob["spec"]["suspend"] is False
    assert (grace + remaining_pods.MARGIN_SECONDS) / 7 < looks.count < (grace + remaining_pods.MARGIN_SECONDS) / 7 + 3


def test_a_stop_during_the_wait_leaves_the_job_suspended(looks: Looks, cluster: EmbeddedCluster, suspended: Job) -> None:
    stop = threading.Event()
    stop.set()
    assert submit(looks, stop).adopted
    assert current(cluster, suspended)["spec"]["suspend"] is True


def resume(cluster: Any, job: Job) -> object:
    return resume_job(cluster, job)


def wait(cluster: Any, job: Job) -> object:
    handle = JobHandle(name=name_of(job), namespace="default", uid=job["metadata"]["uid"], mode="trainjob")
    return wait_step(cluster, handle, program_request())


@pytest.mark.parametrize("client", [resume, wait])
def test_every_client_waits(cluster: EmbeddedCluster, looks: Looks, suspended: Job, set_status: Any, client: Callable) -> None:
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(client, looks, suspended)
        eventually(lambda: looks.count > 2)
        assert current(cluster, suspended)["spec"]["suspend"] is True
        end_pods(cluster)
        eventually(lambda: current(cluster, suspended)["spec"]["suspend"] is False)
        set_status(suspended, "Complete")
        assert acting.result(10) in (ResumeOutcome.resumed, acting.result())


def abandon(cluster: EmbeddedCluster, job: Job) -> Job:
    """Suspend a job as a controller does whose waiting client is cut off."""
    cluster.patch(TRAINJOB, name_of(job), renewal_patch(job, 60, datetime.now(UTC)), "default")
    cancel_version(cluster, current(cluster, job), CancelPolicy.suspend, lost_mark())
    return current(cluster, job)


def test_a_renewed_lease_resumes_only_after_the_last_pod(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    add_pod(job, phase="Running")
    abandoned = abandon(cluster, job)
    assert not renew_lease(cluster, abandoned, 60)
    assert current(cluster, job)["spec"]["suspend"] is True
    end_pods(cluster)
    assert renew_lease(cluster, abandoned, 60)
    assert current(cluster, job)["spec"]["suspend"] is False


def test_a_waiter_that_was_cut_off_resumes_only_after_the_last_pod(
    cluster: EmbeddedCluster, looks: Looks, job: Job, add_pod: Any
) -> None:
    add_pod(job, phase="Running")
    abandoned = abandon(cluster, job)
    with Waiter(looks, abandoned, WaiterOptions(lease_seconds=60)):
        eventually(lambda: looks.count > 2)
        assert names.WAITER_LOST_ANNOTATION in current(cluster, job)["metadata"]["annotations"]
        end_pods(cluster)
        eventually(lambda: current(cluster, job)["spec"]["suspend"] is False)
