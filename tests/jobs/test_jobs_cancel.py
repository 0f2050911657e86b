"""Stopping a job: which jobs are left alone, what is waited for, and what is said where the time is over."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from factories import program_request, trainjob
from support.cluster_without_controllers import current
from support.refusing_cluster import refusing
from support.waiting import eventually

from trainwright.api.errors import Conflict, Forbidden, ServiceUnavailable
from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.state.cancel import CancelOutcome, CancelPolicy, CancelResult, cancel_job, cancel_owned_job

STOPPING = [CancelPolicy.suspend, CancelPolicy.delete]
Job = dict[str, Any]


class Watched(DelegatingCluster):
    """The cluster; the test acts when it is asked for something."""

    def __init__(self, cluster: EmbeddedCluster, *, before_delete: Any = None):
        super().__init__(cluster)
        self._before_delete = before_delete
        self.deletes: list[Any] = []
        self.looks = 0

    def list(self, kind: Kind, *arguments: Any, **more: Any) -> Any:
        self.looks += kind == POD
        return self._cluster.list(kind, *arguments, **more)

    def delete(self, *arguments: Any, **more: Any) -> None:
        self.deletes.append(more)
        if self._before_delete and len(self.deletes) == 1:
            self._before_delete()
        self._cluster.delete(*arguments, **more)


@pytest.mark.parametrize("how", STOPPING)
@pytest.mark.parametrize("ended", ["Complete", "Failed"])
def test_a_job_that_has_ended_is_left_alone(
    cluster: EmbeddedCluster, job: Job, set_status: Any, how: CancelPolicy, ended: str
) -> None:
    before = set_status(job, ended)
    assert cancel_owned_job(cluster, job, how) == "it had already ended"
    assert current(cluster, job) == before


def test_a_job_that_ends_while_it_is_deleted_is_left_alone(cluster: EmbeddedCluster, job: Job, set_status: Any) -> None:
    watched = Watched(cluster, before_delete=lambda: set_status(job, "Complete"))
    assert cancel_job(watched, job, CancelPolicy.delete, timeout_seconds=0).outcome is CancelOutcome.ended
    assert "deletionTimestamp" not in current(cluster, job)["metadata"]
    assert watched.deletes[0]["propagation"] == "Foreground"
    assert watched.deletes[0]["uid"] == job["metadata"]["uid"]


@pytest.mark.parametrize("how", STOPPING)
def test_a_successor_of_its_name_is_left_alone(cluster: EmbeddedCluster, job: Job, how: CancelPolicy) -> None:
    cluster.delete(TRAINJOB, name_of(job), "default")
    assert cancel_owned_job(cluster, job, how) == "it no longer exists"
    successor = cluster.create({**job, "metadata": {"name": name_of(job), "namespace": "default"}})
    assert cancel_owned_job(cluster, job, how) == "it no longer exists"
    assert current(cluster, job) == successor


@pytest.mark.parametrize("how", STOPPING)
def test_a_job_that_is_not_ours_is_left_to_people(cluster: EmbeddedCluster, how: CancelPolicy) -> None:
    theirs = cluster.create(trainjob("theirs"))
    assert "left unchanged" in cancel_owned_job(cluster, theirs, how)
    assert current(cluster, theirs) == theirs
    assert cancel_job(cluster, theirs, how, timeout_seconds=0).outcome in (CancelOutcome.suspended, CancelOutcome.deleted)


def test_a_suspended_job_of_a_workflow_says_when_it_is_deleted_and_how_to_keep_it(cluster: EmbeddedCluster, job: Job) -> None:
    assert "workflow" not in cancel_owned_job(cluster, job, CancelPolicy.suspend)
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "finetune-x1y2z", "uid": "1"}
    cluster.patch(TRAINJOB, name_of(job), {"metadata": {"ownerReferences": [owner]}}, "default")
    said = cancel_owned_job(cluster, job, CancelPolicy.suspend)
    assert said.endswith(
        "; it is deleted with finetune-x1y2z, by default an hour after the end of that workflow, unless the step runs again before or "
        "its metadata.ownerReferences are removed"
    )
    assert "finetune-x1y2z" not in cancel_owned_job(cluster, job, CancelPolicy.delete)


def test_a_kept_job_that_cannot_be_read_is_described_as_last_seen(job: Job) -> None:
    class Away:
        def get(self, *_: Any) -> Any:
            raise ServiceUnavailable("down")

    assert cancel_owned_job(Away(), job, CancelPolicy.keep) == "it is kept, and may still start"  # type: ignore[arg-type]
    suspended = {**job, "spec": {**job["spec"], "suspend": True}}
    assert cancel_owned_job(Away(), suspended, CancelPolicy.keep) == "it stays suspended"  # type: ignore[arg-type]


@pytest.mark.medium
@pytest.mark.parametrize("how", STOPPING)
def test_cancel_waits_until_the_pods_are_gone(cluster: EmbeddedCluster, job: Job, add_pod: Any, how: CancelPolicy) -> None:
    add_pod(job, 0, phase="Running")
    add_pod(job, 1, phase="Succeeded")
    watched = Watched(cluster)
    done: list[CancelResult] = []
    waiter = threading.Thread(target=lambda: done.append(cancel_job(watched, job, how, timeout_seconds=30)))
    waiter.start()
    eventually(lambda: watched.looks >= 2)
    assert not done
    cluster.delete(POD, f"{name_of(job)}-node-0-0-abcde", "default", grace_period_seconds=0)
    waiter.join(10)
    assert (done[0].remaining, done[0].pods_message()) == ("", "")


def test_a_jobset_that_has_not_heard_of_it_may_still_make_pods(cluster: EmbeddedCluster, job: Job) -> None:
    from trainwright.materialize import materialize
    from trainwright.runtimes import bundled_runtime

    runtime = bundled_runtime("torch-distributed")
    assert runtime is not None
    jobset = cluster.create(next(each for each in materialize(job, runtime) if each["kind"] == "JobSet"))
    assert (
        cancel_job(cluster, job, CancelPolicy.suspend, timeout_seconds=0).remaining == f"not stopped yet: JobSet {name_of(job)}"
    )
    cluster.patch(JOBSET, name_of(jobset), {"spec": {"suspend": True}}, "default")
    assert cancel_job(cluster, job, CancelPolicy.suspend, timeout_seconds=0).remaining == ""


def test_the_pods_of_a_successor_are_not_waited_for(cluster: EmbeddedCluster, job: Job, add_pod: Any) -> None:
    watched = Watched(cluster)

    def replaced(*arguments: Any, **more: Any) -> None:
        cluster.delete(*arguments, **more)
        cluster.patch(TRAINJOB, name_of(job), {"metadata": {"finalizers": None}}, "default")
        cluster.create({**job, "metadata": {"name": name_of(job), "namespace": "default"}})
        add_pod(job, 0, phase="Running")

    watched.delete = replaced  # type: ignore[method-assign]
    assert cancel_job(watched, job, CancelPolicy.delete, timeout_seconds=30) == CancelResult(CancelOutcome.deleted)


def test_who_may_not_see_pods_has_stopped_it_all_the_same(cluster: EmbeddedCluster, job: Job) -> None:
    words = cancel_owned_job(refusing(cluster, "get", "list", kinds=[POD]), job, CancelPolicy.suspend)
    assert "it is suspended" in words
    assert words.endswith("its pods could not be checked: may not list")
    assert current(cluster, job)["spec"]["suspend"] is True
    assert cancel_owned_job(refusing(cluster, "get", "list", kinds=[JOBSET]), job, CancelPolicy.suspend).startswith(
        "it is suspended"
    )


def queued(cluster: EmbeddedCluster) -> Job:
    return submit_or_adopt(
        Submission(cluster, program_request(queue_name="team"), Identity("o", "r", "queued"), "default")
    ).trainjob


@pytest.mark.medium
def test_a_job_that_still_waits_in_its_queue_is_deleted(cluster: EmbeddedCluster) -> None:
    job = queued(cluster)
    assert "still in its queue" in cancel_owned_job(cluster, job, CancelPolicy.suspend, timeout_seconds=0)
    assert not [each for each in cluster.list(TRAINJOB).items if not each["metadata"].get("deletionTimestamp")]


def test_a_job_that_its_queue_has_stopped_again_is_left_to_its_owner(cluster: EmbeddedCluster) -> None:
    job = queued(cluster)
    for suspend in (False, True):
        cluster.patch(TRAINJOB, name_of(job), {"spec": {"suspend": suspend}}, "default")
    assert "may start it again" in cancel_owned_job(cluster, job, CancelPolicy.suspend, timeout_seconds=0)
    assert current(cluster, job)["spec"]["suspend"] is True


def test_a_job_that_is_admitted_while_it_is_cancelled_is_suspended(cluster: EmbeddedCluster) -> None:
    job = queued(cluster)

    def admit() -> None:
        cluster.patch(TRAINJOB, name_of(job), {"spec": {"suspend": False}}, "default")

    watched: Any = Watched(cluster, before_delete=admit)
    assert "it is suspended" in cancel_owned_job(watched, job, CancelPolicy.suspend, timeout_seconds=0)
    assert current(cluster, job)["spec"]["suspend"] is True


def test_a_job_of_a_queue_that_may_not_be_deleted_is_named(cluster: EmbeddedCluster) -> None:
    def refuse() -> None:
        raise Forbidden("not you")

    job = queued(cluster)
    watched: Any = Watched(cluster, before_delete=refuse)
    assert "may start it again" in cancel_owned_job(watched, job, CancelPolicy.suspend, timeout_seconds=0)


@pytest.mark.parametrize("how", STOPPING)
def test_a_queued_job_that_changes_all_the_time_is_given_up_on(cluster: EmbeddedCluster, how: CancelPolicy) -> None:
    watched: Any = Watched(cluster)
    job = queued(cluster)

    def changed(*_arguments: Any, **more: Any) -> None:
        watched.deletes.append(more)
        raise Conflict("it has changed")

    watched.delete = changed
    with pytest.raises(Conflict, match=f"{name_of(job)} changed 10 times while it was being deleted"):
        cancel_owned_job(watched, job, how, timeout_seconds=0)
    assert len(watched.deletes) == 10
    assert "deletionTimestamp" not in current(cluster, job)["metadata"]
