"""A failed job is submitted again from its checkpoint, as often as `job_retries` allows, and not if it would only fail again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from factories import container_status, jobset, program_request, train_request

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of, name_of, uid_of
from trainwright.backoff import Backoff
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, StepFailed, Submission, TrainJobFailed, TrainRequest, Waiting, submit_or_adopt
from trainwright.jobs.diagnosis import resubmission
from trainwright.jobs.diagnosis.errors import DeadlineExceeded, OutOfMemory, Preempted
from trainwright.jobs.diagnosis.resubmission import may_retry
from trainwright.jobs.state.attempts import attempts_of, retries_so_far
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.run_step import run_to_end

STEP = Identity("kfp", "run", "train")


def exited(code: int, reason: str = "Error") -> dict[str, Any]:
    """The status of a pod whose container has ended."""
    return {"phase": "Failed", "containerStatuses": [container_status({"terminated": {"exitCode": code, "reason": reason}})]}


BROKEN, KILLED, OUT_OF_MEMORY = exited(1), exited(137), exited(137, "OOMKilled")
Ends = Callable[..., Callable[[Submitted], None]]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (resubmission, resubmission):
        monkeypatch.setattr(module, "RESUBMISSION", Backoff(0.0, 0.0))


@pytest.fixture
def ends(set_status: Any, add_pod: Any) -> Ends:
    """Let each attempt end as it is submitted: the status of its pod if it fails, None if it succeeds."""

    def make(*statuses: dict[str, Any] | None) -> Callable[[Submitted], None]:
        left = list(statuses)

        def end(submitted: Submitted) -> None:
            if (status := left.pop(0)) is None:
                set_status(submitted.trainjob, "Complete")
                return
            add_pod(submitted.trainjob, **status)
            set_status(submitted.trainjob, "Failed")

        return end

    return make


def run(cluster: EmbeddedCluster, end: Callable[[Submitted], None], request: TrainRequest | None = None, **more: Any) -> Any:
    waiting = Waiting(on_submitted=end, **more)
    return run_to_end(Submission(cluster, request or program_request(), STEP, "default"), waiting)


def attempts(cluster: EmbeddedCluster) -> int:
    return len(attempts_of(cluster, STEP, "default"))


def test_a_failed_job_is_submitted_again_until_it_succeeds(cluster: EmbeddedCluster, ends: Ends) -> None:
    ended = run(cluster, ends(BROKEN, KILLED, None), job_retries=2)
    assert attempts(cluster) == 3
    assert retries_so_far(ended) == 2


def test_the_last_failure_says_that_the_retries_are_used_up(cluster: EmbeddedCluster, ends: Ends) -> None:
    with pytest.raises(StepFailed) as raised:
        run(cluster, ends(BROKEN, BROKEN), job_retries=1)
    assert raised.value.__notes__ == ["its retries are used up: limits.job_retries=1"]
    assert attempts(cluster) == 2


def test_a_new_try_of_the_step_does_not_begin_to_count_anew(cluster: EmbeddedCluster, ends: Ends) -> None:
    """Its client was killed after it had submitted the job for the second time."""
    for _ in range(2):
        with pytest.raises(StepFailed):
            run(cluster, ends(BROKEN, BROKEN), job_retries=1)
        for job in attempts_of(cluster, STEP, "default")[:1]:
            cluster.delete(TRAINJOB, name_of(job), "default")
    assert max(map(retries_so_far, attempts_of(cluster, STEP, "default"))) == 3


def test_a_failure_that_would_repeat_is_not_retried(cluster: EmbeddedCluster, ends: Ends) -> None:
    with pytest.raises(OutOfMemory) as raised:
        run(cluster, ends(OUT_OF_MEMORY), job_retries=5)
    assert raised.value.__notes__ == ["limits.job_retries=5 is not used: such a failure is not retried"]
    assert attempts(cluster) == 1


@pytest.mark.parametrize(("kind", "expected"), [(StepFailed, True), (DeadlineExceeded, False), (Preempted, False)])
def test_may_retry_depends_on_the_failure(kind: type[TrainJobFailed], expected: bool) -> None:
    assert may_retry(kind("x", {}, None)) is expected


def test_a_retry_resumes_from_the_checkpoints_of_the_failed_job(cluster: EmbeddedCluster, ends: Ends) -> None:
    """Also of a request that asks to begin with an export: it names where the first attempt begins."""
    request = train_request(
        runtime="trl-sft",
        workspace="pvc://w",
        dataset_uri="hf://a/b",
        model_uri="hf://a/b",
        resume="s3://bucket/x",
        resume_secret="s",
    )
    first = submit_or_adopt(Submission(cluster, request, STEP, "default")).trainjob
    made = cluster.create(jobset(name_of(first)))
    ended = run(cluster, ends(BROKEN, None), request, job_retries=1)
    assert annotations_of(ended)[names.RESUMES_FROM_ANNOTATION] == uid_of(made)
