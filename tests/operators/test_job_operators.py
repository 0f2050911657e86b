"""Suspend, resume and delete TrainJobs from a DAG: by name, or those of the DAG run; a second time changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from factories import task_context, train_request
from support.cluster_without_controllers import current
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET, POD, TRAINJOB
from trainwright.api.objects import name_of
from trainwright.api.phase import superseded
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.request.groups import Placement
from trainwright.jobs.state.cancel import suspend_job
from trainwright.jobs.state.waiters import renewal_patch
from trainwright.steps.ends.change_jobs import JobSuperseded, PodsRemain
from trainwright.submission.jobs_client import JobsClient
from trainwright.submission.jobset_mode import JobSetCluster

CONTEXT = task_context("stop")
task_identity = OnFirstUse("trainwright.operators.values.task_identity")
errors = OnFirstUse("trainwright.operators.errors")
hook = OnFirstUse("trainwright.operators.hook")

Job = dict[str, Any]
ALL = ("SuspendTrainJobOperator", "ResumeTrainJobOperator", "DeleteTrainJobOperator")
REQUEST = train_request(runtime="torch-distributed", command=["true"])


def identity_of(step: str = "train", run: str = "r", dag: str = "d") -> Identity:
    return task_identity.task_identity(task_context(step, run_id=run, dag_id=dag))


@pytest.fixture(params=ALL)
def operator(request: pytest.FixtureRequest) -> Any:
    return getattr(operators, request.param)


@pytest.fixture
def submitted(connected: EmbeddedCluster) -> Callable[..., Job]:
    def submit(step: str = "train", run: str = "r", dag: str = "d", **more: Any) -> Job:
        request = REQUEST.having(**more)
        return submit_or_adopt(Submission(connected, request, identity_of(step, run, dag), "default")).trainjob

    return submit


def is_suspended(cluster: EmbeddedCluster, job: Job) -> bool:
    return bool(current(cluster, job)["spec"].get("suspend"))


def is_gone(cluster: EmbeddedCluster, job: Job) -> bool:
    try:
        return "deletionTimestamp" in current(cluster, job)["metadata"]
    except NotFound:
        return True


def outcomes(changed: list[dict[str, str]]) -> dict[str, str]:
    assert all(set(job) == {"name", "namespace", "outcome"} for job in changed)
    return {job["name"]: job["outcome"] for job in changed}


def test_a_job_is_suspended_resumed_and_deleted_by_its_name_and_a_second_time_is_no_error(
    connected: EmbeddedCluster, submitted: Callable[..., Job]
) -> None:
    job, other = submitted(), submitted("other")
    by_name = {"task_id": "t", "trainjob": name_of(job), "namespace": "default"}
    suspend, resume, delete = (getattr(operators, name)(**by_name) for name in ALL)
    for _ in range(2):
        assert "it is suspended" in outcomes(suspend.execute(task_context("stop", run_id="another run")))[name_of(job)]
        assert is_suspended(connected, job)
    assert outcomes(resume.execute(CONTEXT)) == {name_of(job): "it is resumed"}
    assert not is_suspended(connected, job)
    assert outcomes(resume.execute(CONTEXT)) == {name_of(job): "it was not suspended"}
    assert outcomes(delete.execute(CONTEXT)) == {name_of(job): "it is deleted"}
    assert is_gone(connected, job)
    delete.execute(CONTEXT)
    assert not is_suspended(connected, other)
    assert not is_gone(connected, other)


def test_without_a_name_the_jobs_of_this_run_of_this_dag_are_changed(
    connected: EmbeddedCluster, submitted: Callable[..., Job], set_status: Any
) -> None:
    mine, done = [submitted(), submitted("evaluate")], submitted("done")
    others = [submitted(run="r2"), submitted(dag="d2"), submitted(run="r/x")]
    set_status(done, "Complete")
    assert set(outcomes(operators.SuspendTrainJobOperator(task_id="t").execute(CONTEXT))) == set(map(name_of, mine))
    assert all(is_suspended(connected, job) for job in mine)
    assert not any(is_suspended(connected, job) for job in [*others, done])
    operators.SuspendTrainJobOperator(task_id="t", run_id="d/r2").execute(CONTEXT)
    assert is_suspended(connected, others[0])
    assert set(outcomes(operators.ResumeTrainJobOperator(task_id="t").execute(CONTEXT))) == set(map(name_of, mine))
    assert not any(is_suspended(connected, job) for job in mine)
    assert set(outcomes(operators.DeleteTrainJobOperator(task_id="t").execute(CONTEXT))) == set(map(name_of, [*mine, done]))
    assert all(is_gone(connected, job) for job in [*mine, done])
    assert not any(is_gone(connected, job) for job in others)


def test_a_name_that_renders_to_nothing_is_not_the_whole_run(
    connected: EmbeddedCluster, submitted: Callable[..., Job], operator: Any
) -> None:
    job = submitted()
    for rendered in ("", None):
        task = operator(task_id="t", trainjob="{{ params.job }}")
        task.trainjob = rendered
        with pytest.raises(errors.NonRetryableError, match="trainjob: the name is empty"):
            task.execute(CONTEXT)
    assert not is_suspended(connected, job)
    assert not is_gone(connected, job)
    with pytest.raises(ValueError, match="set only one of them"):
        operator(task_id="t", trainjob="x", run_id="r")


def test_pods_that_do_not_end_in_time_fail_the_task_but_may_be_retried(
    connected: EmbeddedCluster, submitted: Callable[..., Job], add_pod: Any
) -> None:
    job = submitted()
    pod = add_pod(job, phase="Running")
    task = operators.SuspendTrainJobOperator(task_id="t", trainjob=name_of(job), pod_timeout_seconds="0.1")
    for _ in range(2):
        with pytest.raises(
            PodsRemain, match=rf"after 0\.1 s, TrainJob default/{name_of(job)}: still running: pod {name_of(pod)}"
        ):
            task.execute(CONTEXT)
    assert is_suspended(connected, job)
    waits_not = operators.SuspendTrainJobOperator(task_id="t", trainjob=name_of(job), pod_timeout_seconds=0)
    assert "still running" in outcomes(waits_not.execute(CONTEXT))[name_of(job)]
    connected.patch(POD, name_of(pod), {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    assert "still running" not in outcomes(task.execute(CONTEXT))[name_of(job)]


def test_a_superseded_job_is_not_resumed(connected: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    job = submitted()
    suspend_job(connected, job, superseded("its task was cleared"))
    with pytest.raises(errors.NonRetryableError, match="another job of its step writes") as raised:
        operators.ResumeTrainJobOperator(task_id="t", trainjob=name_of(job)).execute(CONTEXT)
    assert isinstance(raised.value.error, JobSuperseded)
    assert operators.ResumeTrainJobOperator(task_id="t").execute(CONTEXT) == []
    assert is_suspended(connected, job)


def test_a_job_in_a_queue_is_left_to_the_queue(connected: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    job = submitted(placement=Placement(queue_name="gpus"))
    connected.patch(TRAINJOB, name_of(job), {"spec": {"suspend": True}}, "default")
    for name in ALL[:2]:
        changed = outcomes(getattr(operators, name)(task_id="t", trainjob=name_of(job)).execute(CONTEXT))
        assert "queue" in changed[name_of(job)]
        assert is_suspended(connected, job)
        assert not is_gone(connected, job)


def test_a_resumed_job_has_no_lease_that_would_suspend_it_again(
    connected: EmbeddedCluster, submitted: Callable[..., Job]
) -> None:
    from datetime import UTC, datetime

    job = submitted()
    connected.patch(TRAINJOB, name_of(job), renewal_patch(job, 30, datetime(2026, 1, 1, tzinfo=UTC)), "default")
    suspend_job(connected, job)
    operators.ResumeTrainJobOperator(task_id="t", trainjob=name_of(job)).execute(CONTEXT)
    annotations = current(connected, job)["metadata"]["annotations"]
    assert not {names.WAITER_LEASE_ANNOTATION, names.WAITER_RENEWED_ANNOTATION, names.SUSPENDED_BY_ANNOTATION} & set(annotations)


def test_a_job_that_was_submitted_in_the_other_mode_is_found(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer was installed after the job had been submitted as a JobSet."""
    client = JobsClient(cluster)
    client.other = JobSetCluster(cluster, served=frozenset({TRAINJOB.plural}))
    monkeypatch.setattr(hook.TrainwrightHook, "connect", lambda _hook, _settings: client)
    name = name_of(submit_or_adopt(Submission(client.other, REQUEST, identity_of(), "default")).trainjob)
    assert cluster.list(TRAINJOB, "default").items == []

    def is_jobset_suspended() -> bool:
        return bool(cluster.get(JOBSET, name, "default")["spec"].get("suspend"))

    for by in ({"trainjob": name}, {}):
        assert set(outcomes(operators.SuspendTrainJobOperator(task_id="t", **by).execute(CONTEXT))) == {name}
        assert is_jobset_suspended()
        assert outcomes(operators.ResumeTrainJobOperator(task_id="t", **by).execute(CONTEXT)) == {name: "it is resumed"}
        assert not is_jobset_suspended()
    assert set(outcomes(operators.DeleteTrainJobOperator(task_id="t", trainjob=name).execute(CONTEXT))) == {name}
    assert not [job for job in cluster.list(JOBSET, "default").items if "deletionTimestamp" not in job["metadata"]]


def test_a_job_whose_submission_is_not_complete_is_not_resumed(connected: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    """In jobset mode a JobSet is created suspended, until its companions exist."""
    job = submitted()
    manifest = {**job, "metadata": {**job["metadata"], "name": "starting"}, "spec": {**job["spec"], "suspend": True}}
    manifest["metadata"]["annotations"] = {
        **job["metadata"]["annotations"],
        names.SUSPENDED_BY_ANNOTATION: names.suspended_by_us(1),
    }
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        manifest["metadata"].pop(field, None)
    manifest.pop("status", None)
    connected.create(manifest)
    changed = outcomes(operators.ResumeTrainJobOperator(task_id="t", trainjob="starting").execute(CONTEXT))
    assert changed == {"starting": "its submission is not complete, which starts it"}
    assert connected.get(TRAINJOB, "starting", "default")["spec"]["suspend"]
