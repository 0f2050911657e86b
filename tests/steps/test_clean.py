"""Which jobs are left over, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from factories import pod, program_request
from support.cluster_without_controllers import set_status  # noqa: F401  fixtures

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import POD, TRAINJOB, Kind
from trainwright.api.objects import name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.state.cancel import CancelPolicy
from trainwright.jobs.state.waiters import Workflow, renewal_patch
from trainwright.steps.ends.clean import LeftJobs, clean, left_jobs, suspend_abandoned
from trainwright.steps.training.own_step import own_step
from trainwright.submission.jobs_client import JobsClient

Job = dict[str, Any]
ARGO = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "finetune-abc", "uid": "u-1"}


@pytest.fixture
def submitted(cluster: EmbeddedCluster) -> Callable[..., Job]:
    def submit(run: str, step: str = "train", owner: str = "kfp", workflow: Workflow | None = None) -> Job:
        return submit_or_adopt(
            Submission(cluster, program_request(), Identity(owner, run, step), "default", workflow=workflow)
        ).trainjob

    return submit


def found(cluster: EmbeddedCluster, **left: Any) -> list[str]:
    return sorted(name_of(job) for job in left_jobs(cluster, "default", LeftJobs(**left)))


def test_the_unfinished_jobs_of_a_run_are_left(
    cluster: EmbeddedCluster,
    submitted: Callable[..., Job],
    set_status: Any,  # noqa: F811
) -> None:
    mine = [submitted("run"), submitted("run", "evaluate")]
    others = [submitted("run-2"), submitted("run", owner="airflow/dag"), submitted("run/x")]
    set_status(submitted("run", "done"), "Complete")
    assert found(cluster, run="run", owner="kfp") == sorted(map(name_of, mine))
    assert found(cluster, run="run") == sorted(map(name_of, [*mine, others[1]]))
    assert found(cluster, run="") == sorted(map(name_of, [*mine, *others]))
    for job in clean(cluster, left_jobs(cluster, "default", LeftJobs(run="run", owner="kfp")), CancelPolicy.suspend):
        assert "it is suspended" in job.outcome
        assert not job.failed
    stopped = {name_of(job) for job in cluster.list(TRAINJOB).items if job["spec"].get("suspend")}
    assert stopped == set(map(name_of, mine))


@pytest.mark.parametrize("run", ["Größe 1", "a" * 100, "run/with/slashes", "x y", "."])
def test_any_text_is_the_id_of_a_run(cluster: EmbeddedCluster, submitted: Callable[..., Job], run: str) -> None:
    job = submitted(run)
    submitted(run + "2")
    assert found(cluster, run=run) == [name_of(job)]


def test_jobs_of_a_workflow_are_left_whatever_their_run(cluster: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    workflow = Workflow("finetune-abc", "elsewhere", ARGO)
    tied, other = submitted("one", workflow=workflow), submitted("two")
    submitted("three")
    assert found(cluster, workflow="finetune-abc") == [name_of(tied)]
    assert found(cluster, workflow="finetune-abc", run="two") == sorted(map(name_of, [tied, other]))


def test_jobs_of_others_are_never_left(cluster: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    job = submitted("run")
    cluster.patch(TRAINJOB, name_of(job), {"metadata": {"annotations": {names.OWNER_ANNOTATION: None}}}, "default")
    assert not found(cluster, run="run")
    assert not found(cluster)


def test_age_and_lease(cluster: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    job, other = submitted("run"), submitted("other")
    assert not found(cluster, older_than=timedelta(days=1))
    assert found(cluster, older_than=timedelta(0)) == sorted(map(name_of, [job, other]))
    patch = renewal_patch(job, 60, datetime.now(UTC) - timedelta(seconds=100))
    cluster.patch(TRAINJOB, name_of(job), patch, "default")
    assert found(cluster, abandoned=True) == [name_of(job)]
    assert [each.name for each in suspend_abandoned(cluster, "default")] == [name_of(job)]
    assert not found(cluster, abandoned=True)


def test_deleting_keeps_no_pod_and_nothing_else_is_touched(cluster: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    job, other = submitted("run"), submitted("other")
    (cleaned,) = clean(cluster, [job], CancelPolicy.delete)
    assert cleaned.outcome == "it is deleted"
    assert [name_of(each) for each in cluster.list(TRAINJOB).items if not each["metadata"].get("deletionTimestamp")] == [
        name_of(other)
    ]


class Refusing(DelegatingCluster):
    """May not patch one job."""

    def __init__(self, cluster: EmbeddedCluster, name: str):
        super().__init__(cluster)
        self._name = name

    def patch(self, kind: Kind, name: str, *more: Any, **options: Any) -> Any:
        if name == self._name:
            raise Forbidden("not you")
        return self._cluster.patch(kind, name, *more, **options)


def test_an_error_with_one_job_does_not_keep_the_others_running(cluster: EmbeddedCluster, submitted: Callable[..., Job]) -> None:
    jobs = [submitted("one"), submitted("two")]
    first, second = clean(Refusing(cluster, name_of(jobs[0])), jobs, CancelPolicy.suspend)
    assert (first.failed, first.outcome) == (True, "it could not be stopped: not you")
    assert not second.failed
    json.dumps([first.__dict__, second.__dict__])


def test_a_step_knows_its_workflow_from_its_pod(cluster: EmbeddedCluster) -> None:
    made = cluster.create(pod("step", metadata={"ownerReferences": [{**ARGO, "controller": True}]}))
    client, uid = JobsClient.of(cluster), made["metadata"]["uid"]

    def workflow(**environ: str) -> Workflow | None:
        return own_step(client, environ).workflow

    assert workflow(KFP_POD_NAME="step", KFP_POD_UID=uid) == Workflow("finetune-abc", "default", ARGO)
    assert workflow(KFP_POD_NAME="step") is not None
    assert workflow(KFP_POD_NAME="step", KFP_POD_UID="another") is None
    assert workflow(KFP_POD_NAME="gone") is None
    assert workflow() is None
    cluster.patch(POD, "step", {"metadata": {"ownerReferences": None}}, "default")
    assert workflow(KFP_POD_NAME="step") is None
