"""A job that its client has given up has failed for everyone: for other waiters, retries, a person who resumes it, and kubectl."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from factories import train_request
from support.cluster_without_controllers import current
from support.refusing_cluster import refusing

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import ApiError, Invalid, ServiceUnavailable
from trainwright.api.kinds import CLAIM, EVENT, JOBSET, TRAINJOB
from trainwright.api.objects import annotations_of, name_of
from trainwright.api.phase import Phase, is_superseded, phase_of, superseded, verdict_of, written_verdict
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.cluster.retrying import RetryingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Submission, TrainRequest, Waiting, submit_or_adopt, suspend_job
from trainwright.jobs.diagnosis.errors import (
    CannotStart,
    CommandNotFound,
    Diverged,
    ImagePullTimeout,
    NodeLost,
    OutOfMemory,
    QueueTimeout,
    RunTimeout,
    StartTimeout,
    StepFailed,
    TrainJobDeadline,
    TrainJobError,
    verdict_on,
)
from trainwright.jobs.diagnosis.failure_report import FailureReport
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.state.cancel import CancelPolicy, cancel_by_suspending, cancel_job, cancel_owned_job
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.progress import Divergence
from trainwright.jobs.submit import submit_or_adopt as submit_or_adopt_module
from trainwright.jobs.wait.follow_job import wait_for
from trainwright.jobs.wait.give_up import cancel_unwatched_job
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.resume_job import ResumeOutcome, resume_job
from trainwright.jobs.wait.run_step import follow_to_end
from trainwright.submission.jobset_mode import JobSetCluster

STEP = Identity("kfp", "given-up", "train")
REQUEST = train_request(runtime="torch-distributed", command=["sleep", "60"])
SETTINGS = WaitSettings(poll_seconds=0.05)
FAILED = PodFailure(
    "a-node-0-1-x", "node", 1, container="node", exit_code=3, message="no data", lines=("step 1", "ValueError: no")
)
REPORT = FailureReport("default", "a", "u", "FailedTooOften", "pod a-node-0-1-x exited 3", pods=(FAILED,))
KILLED = replace(FAILED, exit_code=137, reason="OOMKilled", message="", memory_limit="4Gi")
Job = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody ends the pods of a job that is stopped."""
    monkeypatch.setitem(cancel_owned_job.__kwdefaults__, "timeout_seconds", 0.0)


@pytest.fixture
def submitted(cluster: EmbeddedCluster) -> Job:
    return submit_or_adopt(Submission(cluster, REQUEST, STEP, "default")).trainjob


def give_up(cluster: EmbeddedCluster, job: Job, error: TrainJobError) -> Job:
    verdict = verdict_on(error)
    assert verdict is not None
    assert suspend_job(cluster, job, verdict)
    return current(cluster, job)


def failing(job: Job) -> StepFailed:
    report = replace(REPORT, name=name_of(job))
    return StepFailed(str(report), job, report)


ERRORS: dict[str, Callable[[Job], TrainJobError]] = {
    "StepFailed": failing,
    "OutOfMemory": lambda job: OutOfMemory("", job, replace(REPORT, pods=(KILLED,))),
    "Diverged": lambda job: Diverged(job, Divergence("loss", "nan", "step 4", 3)),
    "RunTimeout": lambda _job: RunTimeout("was Running for more than 5 s", "run", ["step 7"]),
    "StartTimeout": lambda _job: StartTimeout("was Starting for more than 5 s", "start"),
    "QueueTimeout": lambda _job: QueueTimeout("was Suspended for more than 5 s", "queue"),
    "TrainJobDeadline": lambda _job: TrainJobDeadline("has not ended within 5 s", "total"),
    "ImagePullTimeout": lambda _job: ImagePullTimeout("image x", "start"),
    "CommandNotFound": lambda _job: CommandNotFound("no such command", "start"),
    "CannotStart": lambda _job: CannotStart("a Secret is missing", "start"),
    "NodeLost": lambda _job: NodeLost("node n is lost"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_second_waiter_gets_the_error_of_the_first(cluster: EmbeddedCluster, submitted: Job, name: str) -> None:
    first = ERRORS[name](submitted)
    left = give_up(cluster, submitted, first)
    assert phase_of(left) is Phase.Failed
    with pytest.raises(type(first)) as raised:
        wait_for(cluster, left, SETTINGS)
    assert type(raised.value) is type(first)
    assert [line for line in str(first).splitlines() if line not in str(raised.value)] == []
    assert current(cluster, submitted) == left, "a second waiter changes nothing"


def test_retry_after_a_failure_submits_the_next_attempt(cluster: EmbeddedCluster, submitted: Job) -> None:
    give_up(cluster, submitted, failing(submitted))
    retry = submit_or_adopt(Submission(cluster, REQUEST, STEP, "default"))
    assert (retry.adopted, retry.attempt) == (False, 2)
    assert resume_job(cluster, submitted) is ResumeOutcome.superseded, "both would write to one folder"


def test_retry_after_a_deadline_resumes_the_job_without_its_verdict(cluster: EmbeddedCluster, submitted: Job) -> None:
    give_up(cluster, submitted, RunTimeout("was Running for more than 5 s", "run"))
    retry = submit_or_adopt(Submission(cluster, REQUEST, STEP, "default"))
    assert (retry.adopted, retry.attempt) == (True, 1)
    left = current(cluster, submitted)
    assert not left["spec"]["suspend"]
    assert names.VERDICT_ANNOTATION not in annotations_of(left)


def test_claim_that_was_missing_is_created_for_the_resumed_job(cluster: EmbeddedCluster) -> None:
    def request(workspace: str) -> TrainRequest:
        return train_request(runtime="torch-distributed", command=["sleep", "60"], workspace=workspace)

    first = submit_or_adopt(Submission(cluster, request("pvc://nowhere"), STEP, "default")).trainjob
    give_up(cluster, first, CannotStart("the claim is missing", "start"))
    retry = submit_or_adopt(Submission(cluster, request("pvc://nowhere?size=1Gi"), STEP, "default"))
    assert (retry.adopted, retry.attempt) == (True, 1)
    assert name_of(cluster.get(CLAIM, "nowhere", "default")) == "nowhere"


def test_job_that_is_resumed_while_its_retry_submits_is_stopped_again(
    cluster: EmbeddedCluster, submitted: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up(cluster, submitted, failing(submitted))
    resumed: list[bool] = []

    def resume_meanwhile(_cluster: Any, earlier: Job, *_arguments: Any, **_more: Any) -> bool:
        if not resumed and name_of(earlier) == name_of(submitted):
            resumed.append(True)
            cluster.patch(TRAINJOB, name_of(submitted), {"spec": {"suspend": False}}, "default")
        return True

    monkeypatch.setattr(submit_or_adopt_module, "wait_until_pods_ended", resume_meanwhile)
    retry = submit_or_adopt(Submission(cluster, REQUEST, STEP, "default"))
    assert (resumed, retry.attempt) == ([True], 2)
    left = current(cluster, submitted)
    assert left["spec"]["suspend"], "two jobs of one step never run at once"
    assert resume_job(cluster, submitted) is ResumeOutcome.superseded


def test_api_server_that_fails_for_a_moment_does_not_keep_a_job_running(cluster: EmbeddedCluster, submitted: Job) -> None:
    class Failing(DelegatingCluster):
        failures = 1

        def patch(self, *arguments: Any, **options: Any) -> Job:
            if self.failures:
                self.failures -= 1
                raise ServiceUnavailable("etcdserver: request timed out")
            return super().patch(*arguments, **options)

    outcome = cancel_unwatched_job(Failing(cluster), submitted, cancel_by_suspending, failing(submitted))
    assert "counts as failed" in outcome
    assert phase_of(current(cluster, submitted)) is Phase.Failed


def test_signal_leaves_no_time_for_retries(cluster: EmbeddedCluster, submitted: Job) -> None:
    tries: list[bool] = []

    def fail(_cluster: Any, _job: Job) -> str:
        tries.append(isinstance(_cluster, RetryingCluster))
        raise ServiceUnavailable("connection refused")

    assert "could not be stopped" in cancel_unwatched_job(cluster, submitted, fail)
    assert tries == [False]


def test_job_without_room_for_a_verdict_is_suspended(cluster: EmbeddedCluster, submitted: Job) -> None:
    class Full(DelegatingCluster):
        def patch(self, kind: Any, name: str, patch: Job, *arguments: Any, **options: Any) -> Job:
            if names.VERDICT_ANNOTATION in (patch.get("metadata") or {}).get("annotations", {}):
                raise Invalid("metadata.annotations: Too long: may not be more than 262144 bytes")
            return super().patch(kind, name, patch, *arguments, **options)

    cancel_unwatched_job(Full(cluster), submitted, cancel_by_suspending, failing(submitted))
    assert phase_of(current(cluster, submitted)) is Phase.Suspended


def test_credentials_in_last_lines_are_left_out(cluster: EmbeddedCluster, submitted: Job) -> None:
    lines = ("step 1", "HF_TOKEN=hf_secretvalue", "login with hf_" + "a" * 34, "ValueError: no")
    report = replace(REPORT, pods=(replace(FAILED, lines=lines),))
    cancel_unwatched_job(cluster, submitted, cancel_by_suspending, StepFailed("", submitted, report))
    verdict = verdict_of(current(cluster, submitted))
    assert verdict is not None
    first, second, third, last = verdict.pods[0].lines
    assert (first, last) == ("step 1", "ValueError: no")
    assert second.startswith("(left out: ")
    assert third.startswith("(left out: ")


def test_job_that_a_person_has_suspended_gets_no_verdict(cluster: EmbeddedCluster, submitted: Job) -> None:
    cluster.patch(TRAINJOB, name_of(submitted), {"spec": {"suspend": True}}, "default")
    left = give_up(cluster, submitted, RunTimeout("was Running for more than 5 s", "run"))
    assert phase_of(left) is Phase.Suspended
    assert written_verdict(left) is None


def test_cancelled_job_does_not_fail_because_others_wait_for_it(cluster: EmbeddedCluster, submitted: Job) -> None:
    assert suspend_job(cluster, submitted)  # as `trainwright cancel`
    left = give_up(cluster, submitted, QueueTimeout("was Suspended for more than 5 s", "queue"))
    assert phase_of(left) is Phase.Suspended


def test_first_verdict_stays_also_if_the_job_is_replaced(cluster: EmbeddedCluster, submitted: Job) -> None:
    give_up(cluster, submitted, failing(submitted))
    left = give_up(cluster, submitted, RunTimeout("late", "run"))
    assert "exited 3" in str(verdict_of(left))
    assert suspend_job(cluster, submitted, superseded("its task was cleared"))
    last = current(cluster, submitted)
    assert "exited 3" in str(verdict_of(last))
    assert is_superseded(last)


@pytest.mark.parametrize("status", ["Complete", "Failed"])
def test_end_of_a_job_counts_more_than_the_deadline_that_it_met(
    cluster: EmbeddedCluster, submitted: Job, set_status: Any, status: str
) -> None:
    """The job ends between the last look of the waiter and the request that suspends it."""

    def end_and_cancel(client: Any, job: Job, verdict: Any = None) -> str:
        set_status(submitted, status)
        return str(cancel_job(client, job, CancelPolicy.suspend, verdict=verdict, timeout_seconds=0))

    def follow() -> Job:
        return follow_to_end(
            cluster, submitted, Waiting(replace(SETTINGS, deadlines=Deadlines(total=0.01)), on_error=end_and_cancel)
        )

    if status == "Complete":
        assert is_true(follow(), "Complete")
        return
    with pytest.raises(TrainJobError) as raised:
        follow()
    assert not isinstance(raised.value, TrainJobDeadline)


@pytest.mark.parametrize("may_create", [True, False])
def test_event_says_why_where_the_client_may_create_one(cluster: EmbeddedCluster, submitted: Job, may_create: bool) -> None:
    client = cluster if may_create else refusing(cluster, "create", kinds=[EVENT])
    assert "counts as failed" in cancel_unwatched_job(client, submitted, cancel_by_suspending, failing(submitted))
    events = cluster.list(EVENT, "default", field_selector=f"involvedObject.name={name_of(submitted)}").items
    found = [(event["type"], event["reason"], event["message"]) for event in events if event["reason"] == "FailedTooOften"]
    assert found == ([("Warning", "FailedTooOften", "given up by its client: pod a-node-0-1-x exited 3")] if may_create else [])
    assert phase_of(current(cluster, submitted)) is Phase.Failed


def test_request_that_fails_leaves_no_verdict(cluster: EmbeddedCluster, submitted: Job) -> None:
    def refuse(_cluster: Any, _job: Job, _verdict: Any = None) -> str:
        raise ApiError("no route to host")

    assert cancel_unwatched_job(cluster, submitted, refuse, failing(submitted)) == "it could not be stopped: no route to host"
    assert phase_of(current(cluster, submitted)) is Phase.Starting


def test_jobset_that_carries_the_job_keeps_the_verdict(cluster: EmbeddedCluster) -> None:
    client = JobSetCluster(cluster)
    job = submit_or_adopt(Submission(client, REQUEST, STEP, "default")).trainjob
    cancel_unwatched_job(client, job, cancel_by_suspending, failing(job))
    assert phase_of(client.get(TRAINJOB, name_of(job), "default")) is Phase.Failed
    jobset = cluster.get(JOBSET, name_of(job), "default")
    assert names.VERDICT_ANNOTATION in annotations_of(jobset)
    events = cluster.list(EVENT, "default").items
    about = [event["involvedObject"]["kind"] for event in events if event["reason"] == "FailedTooOften"]
    assert about == ["JobSet"]
    assert resume_job(client, job) is ResumeOutcome.resumed
    assert phase_of(client.get(TRAINJOB, name_of(job), "default")) is Phase.Starting
