"""CleanUpOperator: which jobs it stops, and that it runs in a DAG whose training has failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from factories import task_context, train_request
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainJobError, submit_or_adopt
from trainwright.jobs.state.waiters import renewal_patch

task_identity = OnFirstUse("trainwright.operators.values.task_identity")
errors = OnFirstUse("trainwright.operators.errors")

Job = dict[str, Any]


@pytest.fixture
def submitted(connected: EmbeddedCluster) -> Callable[..., Job]:
    def submit(step: str = "train", run: str = "r", owner: str = "airflow/d") -> Job:
        request = train_request(runtime="torch-distributed", command=["true"])
        identity = Identity(owner, run, step)
        if owner.startswith("airflow/"):
            dag = owner.removeprefix("airflow/")
            identity = task_identity.task_identity(task_context(step, run_id=run, dag_id=dag))
        return submit_or_adopt(Submission(connected, request, identity, "default")).trainjob

    return submit


def left(cluster: EmbeddedCluster) -> set[str]:
    return {name_of(job) for job in cluster.list(TRAINJOB, "default").items if not job["spec"].get("suspend")}


def names_of(*jobs: Job) -> set[str]:
    return set(map(name_of, jobs))


def test_by_default_the_unfinished_jobs_of_this_dag_run_are_suspended(
    connected: EmbeddedCluster, submitted: Callable[..., Job], set_status: Any
) -> None:
    mine, done = submitted(), submitted("done")
    others = [submitted(run="r2"), submitted(owner="airflow/d2"), submitted(owner="kfp")]
    set_status(done, "Complete")
    [cleaned] = operators.CleanUpOperator(task_id="t").execute(task_context("clean-up"))
    assert left(connected) == names_of(done, *others)
    assert (cleaned["name"], cleaned["namespace"], cleaned["submitter"]) == (name_of(mine), "default", "airflow/d/d/r/train")
    assert type(cleaned["phase"]) is str
    assert cleaned["outcome"].startswith("it is suspended")
    assert operators.CleanUpOperator(task_id="t", run_id="d/r2").execute(task_context("clean-up"))
    assert left(connected) == names_of(done, *others[1:])
    assert operators.CleanUpOperator(task_id="t").execute(task_context("clean-up", run_id="none")) == []


def test_jobs_are_deleted_or_kept_as_asked(connected: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    job = submitted()
    assert operators.CleanUpOperator(task_id="t", on_failure="keep").execute(task_context("clean-up")) == []
    assert left(connected) == names_of(job)
    operators.CleanUpOperator(task_id="t", on_failure="delete").execute(task_context("clean-up"))
    assert not [job for job in connected.list(TRAINJOB, "default").items if "deletionTimestamp" not in job["metadata"]]
    with pytest.raises(ValueError, match="expected suspend, delete or keep"):
        operators.CleanUpOperator(task_id="t", on_failure="stop")


def test_jobs_whose_waiting_client_is_gone_are_stopped(connected: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    abandoned, waited_for = submitted(owner="kfp"), submitted()
    for job, renewed in ((abandoned, datetime(2026, 1, 1, tzinfo=UTC)), (waited_for, datetime.now(UTC))):
        connected.patch(TRAINJOB, name_of(job), renewal_patch(job, 1800, renewed), "default")
    operators.CleanUpOperator(task_id="t", abandoned=True).execute(task_context("clean-up"))
    assert left(connected) == names_of(waited_for)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"older_than_days": "soon"}, "older_than_days: 'soon': expected a number"),
        ({"older_than_days": -1}, "older_than_days: -1: expected a number that is not negative"),
        ({"older_than_days": "inf"}, "older_than_days: 'inf'"),
        ({"older_than_days": 40_000}, "expected at most 36500"),
        ({"abandoned": "perhaps"}, "abandoned: 'perhaps': expected true or false"),
        ({"all_namespaces": True}, "all_namespaces: only with older_than_days or abandoned"),
    ],
)
def test_invalid_arguments_are_refused_without_retries(
    connected: EmbeddedCluster, submitted: Callable[..., Job], arguments: dict[str, Any], message: str
) -> None:
    job = submitted()
    with pytest.raises(errors.NonRetryableError, match=message):
        operators.CleanUpOperator(task_id="t", **arguments).execute(task_context("clean-up"))
    assert left(connected) == names_of(job)


def test_a_job_that_cannot_be_stopped_fails_the_task_after_the_others(
    connected: EmbeddedCluster, submitted: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, other = submitted(), submitted("other")
    patch = connected.patch

    def patched(kind: Any, name: str, *arguments: Any, **more: Any) -> Any:
        if name == name_of(refused):
            raise Forbidden("no")
        return patch(kind, name, *arguments, **more)

    monkeypatch.setattr(connected, "patch", patched)
    with pytest.raises(TrainJobError, match=rf"may still be running: default/{name_of(refused)}; see the log"):
        operators.CleanUpOperator(task_id="t").execute(task_context("clean-up"))
    assert name_of(other) not in left(connected)
