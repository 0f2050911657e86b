"""Pods that are taken away: the step goes on as its next attempt, within a budget that no crash resets."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import container_status, jobset, program_request, replicated_job, train_request
from support.refusing_cluster import refusing
from support.running_plane import create_runtime_once, running_plane
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, POD, TRAINJOB
from trainwright.api.objects import annotations_of, name_of, uid_of
from trainwright.backoff import Backoff
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Identity, Preempted, StepFailed, Submission, TrainRequest, Waiting, submit_or_adopt
from trainwright.jobs.diagnosis import resubmission
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.diagnosis.failure_class import failure_of
from trainwright.jobs.state.attempts import attempt_of, attempts_of, preemptions_so_far
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.wait import run_step as run_module
from trainwright.jobs.wait.run_step import run_to_end

STEP = Identity("kfp", "run", "train")
TAKEN = {
    "phase": "Failed",
    "conditions": [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "preempting to accommodate a higher priority pod",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}
BROKEN = {"phase": "Failed", "containerStatuses": [container_status({"terminated": {"exitCode": 3, "reason": "Error"}})]}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resubmission, "RESUBMISSION", Backoff(0.0, 0.0))


@pytest.fixture
def fail(cluster: EmbeddedCluster, set_status: Any, add_pod: Any) -> Callable[..., dict[str, Any]]:
    """Let the newest attempt fail of what happened to its pod; returns the job."""

    def make(status: dict[str, Any]) -> dict[str, Any]:
        job = newest(cluster)
        add_pod(job, **status)
        return set_status(job, "Failed")  # type: ignore[no-any-return]

    return make


def newest(cluster: EmbeddedCluster) -> dict[str, Any]:
    return max(attempts_of(cluster, STEP, "default"), key=attempt_of)


def count(cluster: EmbeddedCluster) -> int:
    return max(preemptions_so_far(job) for job in attempts_of(cluster, STEP, "default"))


class BackgroundRun:
    """A run in a thread of its own, and how it ended."""

    def __init__(self, cluster: Any, request: TrainRequest, **more: Any):
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(cluster, request), kwargs=more, daemon=True)
        self._thread.start()

    def _run(self, cluster: Any, request: TrainRequest, **more: Any) -> None:
        try:
            self.result = run_to_end(Submission(cluster, request, STEP, "default"), Waiting(**more))
        except BaseException as error:
            self.error = error

    def ended(self) -> BackgroundRun:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self


def reached(cluster: EmbeddedCluster, attempt: int) -> dict[str, Any]:
    def there() -> bool:
        jobs = attempts_of(cluster, STEP, "default")
        return bool(jobs) and attempt_of(max(jobs, key=attempt_of)) == attempt

    eventually(there, what=f"attempt {attempt}")
    return newest(cluster)


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[ControlPlane]:
    """The real controllers without a node, and the runtime `once`, which tries no pod again."""
    with running_plane(tmp_path, node=False) as plane:
        create_runtime_once(plane.cluster)
        yield plane


@pytest.mark.medium
def test_the_controllers_own_end_of_a_preempted_job_is_followed_by_the_next_generation(controllers: ControlPlane) -> None:
    cluster: Any = controllers.cluster
    following = BackgroundRun(cluster, train_request(runtime="once", command=["true"]), preemption_budget=2)
    for attempt in (1, 2, 3):
        job = reached(cluster, attempt)
        (pod,) = eventually(partial(pods_of, cluster, job))
        cluster.patch(POD, name_of(pod), {"status": TAKEN}, "default", subresource="status")
    error = following.ended().error
    assert isinstance(error, Preempted)
    assert "was preempted, PreemptionByScheduler: preempting to accommodate a higher priority pod" in str(error)
    assert "its preemption budget of 2 resubmissions is exhausted" in str(error)
    assert error.report is not None
    assert error.report.as_dict()["preemptions"] == 2
    assert "used: 2 preemptions" in str(error)
    assert len(attempts_of(cluster, STEP, "default")) == 3


@pytest.mark.medium
def test_a_runtime_of_the_documented_form_restarts_by_itself(controllers: ControlPlane) -> None:
    cluster: Any = controllers.cluster
    page = Path(__file__).parents[2] / "docs/resume.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    runtime = cluster.get(CLUSTER_TRAINING_RUNTIME, "once")
    spec, said = runtime["spec"]["template"]["spec"], yaml.safe_load(text)["template"]["spec"]
    job, wanted = spec["replicatedJobs"][0]["template"]["spec"], said["replicatedJobs"][0]["template"]["spec"]
    spec["failurePolicy"], job["podFailurePolicy"] = said["failurePolicy"], wanted["podFailurePolicy"]
    job["template"]["spec"]["restartPolicy"] = wanted["template"]["spec"]["restartPolicy"]
    cluster.create({**runtime, "metadata": {"name": "itself"}})
    made = submit_or_adopt(Submission(cluster, train_request(runtime="itself", command=["true"]), STEP, "default")).trainjob
    for restarts in (1, 2):
        (pod,) = eventually(lambda: [pod for pod in pods_of(cluster, made) if not (pod.get("status") or {}).get("conditions")])
        cluster.patch(POD, name_of(pod), {"status": TAKEN}, "default", subresource="status")
        eventually(lambda restarts=restarts: cluster.get(JOBSET, name_of(made), "default")["status"].get("restarts") == restarts)
    assert not is_finished(cluster.get(TRAINJOB, name_of(made), "default"))


def test_another_failure_is_not_resumed_and_says_what_was_used(cluster: EmbeddedCluster, fail: Any) -> None:
    following = BackgroundRun(cluster, program_request())
    reached(cluster, 1)
    fail(TAKEN)
    reached(cluster, 2)
    fail(BROKEN)
    error = following.ended().error
    assert isinstance(error, StepFailed)
    assert error.report is not None
    assert error.report.preemptions == 1
    assert len(attempts_of(cluster, STEP, "default")) == 2


def test_the_budget_counts_across_retries_and_deleted_generations(cluster: EmbeddedCluster, fail: Any) -> None:
    following = BackgroundRun(cluster, program_request(previous_jobs="delete"), preemption_budget=1)
    reached(cluster, 1)
    fail(TAKEN)
    reached(cluster, 2)
    fail(TAKEN)
    assert isinstance(following.ended().error, Preempted)
    again = BackgroundRun(cluster, program_request(previous_jobs="delete"), preemption_budget=1)  # the orchestrator's retry
    third = reached(cluster, 3)
    assert preemptions_so_far(third) == 2
    fail(TAKEN)
    error = again.ended().error
    assert isinstance(error, Preempted)
    assert "its preemption budget of 1 resubmissions" in str(error)
    assert count(cluster) == 3


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("when", ["before it is counted", "after it is counted", "before the next is submitted"])
def test_whoever_is_killed_in_between_loses_no_count(
    cluster: EmbeddedCluster, fail: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def dying(*_: Any, **__: Any) -> Any:
        raise Killed

    following = BackgroundRun(cluster, program_request(), preemption_budget=1)
    reached(cluster, 1)
    with monkeypatch.context() as patched:
        match when:
            case "before it is counted":
                patched.setattr(run_module, "wait_to_resume", dying)
            case "after it is counted":
                patched.setattr("random.uniform", dying)
            case _:
                patched.setattr(run_module, "submit_or_adopt", dying)
        fail(TAKEN)
        assert isinstance(following.ended().error, Killed)
    again = BackgroundRun(cluster, program_request(), preemption_budget=1)
    assert preemptions_so_far(reached(cluster, 2)) == 1
    fail(TAKEN)
    assert isinstance(again.ended().error, Preempted)
    assert count(cluster) == 2


def test_adoption_counts_a_preemption_once(cluster: EmbeddedCluster, fail: Any, set_status: Any) -> None:
    submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    first = fail(TAKEN)
    error = failure_of(cluster, first)
    assert isinstance(error, Preempted)
    assert resubmission.wait_to_resume(cluster, error, 3, threading.Event())
    assert resubmission.wait_to_resume(cluster, error, 3, threading.Event())  # another who followed the same job
    for _ in range(3):
        submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    assert count(cluster) == 1
    set_status(newest(cluster), "Complete")
    assert resubmission.mark_if_preempted(cluster, newest(cluster)) == newest(cluster)


def test_a_signal_ends_the_wait_before_the_next_is_submitted(
    cluster: EmbeddedCluster, fail: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resubmission, "RESUBMISSION", Backoff(600.0, 600.0))
    stop = threading.Event()
    submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    fail(TAKEN)

    monkeypatch.setattr(run_module, "stop_on_signals", lambda: nullcontext(stop))
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Cancelled, match="was preempted, and the wait to submit it again was cancelled"):
        run_module.follow_to_end(
            cluster, newest(cluster), Waiting(), resubmit=lambda: pytest.fail("nothing is submitted any more")
        )
    assert count(cluster) == 1
    assert len(attempts_of(cluster, STEP, "default")) == 1


def test_resume_fails_if_the_preemption_cannot_be_recorded(cluster: EmbeddedCluster, fail: Any) -> None:
    narrow = refusing(cluster, "patch", error=Forbidden("not you"))
    submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    error = failure_of(cluster, fail(TAKEN))
    assert isinstance(error, Preempted)
    with pytest.raises(Preempted, match="cannot be recorded: not you"):
        resubmission.wait_to_resume(narrow, error, 3, threading.Event())
    retried = submit_or_adopt(Submission(narrow, program_request(), STEP, "default"))
    assert preemptions_so_far(retried.trainjob) == 1


@pytest.mark.medium
def test_after_a_preemption_the_next_goes_on_from_its_checkpoints_whatever_beginning_is_asked_for(
    cluster: EmbeddedCluster, fail: Any
) -> None:
    request = train_request(runtime="trl-sft", workspace="pvc://w", resume="never", dataset_uri="hf://a/b", model_uri="hf://a/b")

    def told() -> tuple[str, str]:
        """What the newest attempt's container is told, and its annotation."""
        (patch,) = [patch for patch in newest(cluster)["spec"]["runtimePatches"] if patch["manager"] == "trainwright.dev/resume"]
        (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        (container,) = job["template"]["spec"]["template"]["spec"]["initContainers"]
        said = {entry["name"]: entry.get("value", "") for entry in container["env"]}
        assert said[names.RESUME_VARIABLE] == "never"
        return said.get(names.RESUMES_FROM_VARIABLE, ""), annotations_of(newest(cluster)).get(names.RESUMES_FROM_ANNOTATION, "")

    def create_jobset() -> str:
        return uid_of(cluster.create(jobset(name_of(newest(cluster)), replicated_job())))

    submit_or_adopt(Submission(cluster, request, STEP, "default"))
    assert told() == ("", "")
    first = create_jobset()
    fail(TAKEN)
    made = submit_or_adopt(Submission(cluster, request, STEP, "default"))
    assert told() == (first, first)
    assert submit_or_adopt(Submission(cluster, request, STEP, "default")).name == made.name
    second = create_jobset()
    fail(TAKEN)
    submit_or_adopt(Submission(cluster, request, STEP, "default"))
    assert told() == (f"{second},{first}", f"{second},{first}")
    fail(TAKEN)  # and its JobSet cannot be read
    submit_or_adopt(Submission(cluster, request, STEP, "default"))
    assert told() == (f"{second},{first}", f"{second},{first}")
    fail(BROKEN)
    submit_or_adopt(Submission(cluster, request, STEP, "default"))
    assert told() == ("", "")
