"""What stands beside a JobSet, the key and the list of hosts of an MPI job: made after it, owned by it, never left alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from factories import train_request
from support.jobset_mode_cluster import MPI, STEP, Inner, conditions, entry, set_status, two_node_trainjob

from trainwright.api import names
from trainwright.api.errors import Forbidden, Invalid
from trainwright.api.kinds import CONFIG_MAP, JOBSET, SECRET, TRAINJOB
from trainwright.api.objects import annotations_of, name_of, owners_of, uid_of
from trainwright.cluster.retrying import RetryingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt, suspend_job
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.submission.jobset_mode.conversion import awaits_companions


def companions(inner: Inner) -> list[Any]:
    return [obj for kind in (CONFIG_MAP, SECRET) for obj in inner.list(kind, "default").items]


def mpi(name: str = "demo", **fields: Any) -> dict[str, Any]:
    return two_node_trainjob(name, runtime=MPI, **fields)


def test_companions_go_with_their_jobset_and_are_there_before_it_runs(cluster: JobSetCluster, inner: Inner) -> None:
    controller = []

    def look(verb: str, kind: str) -> None:
        if (verb, kind) == ("patch", "JobSet"):
            controller.append([name_of(obj) for obj in companions(inner)])

    inner.before = look
    made = cluster.create(mpi())
    jobset = inner.get(JOBSET, "demo", "default")
    assert inner.made == ["JobSet", "Secret", "ConfigMap"]
    assert controller == [["demo-mpi-hostfile", "demo-mpi-ssh-auth"]]
    assert jobset["spec"]["suspend"] is False
    for companion in companions(inner):
        (owner,) = owners_of(companion)
        assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("JobSet", uid_of(jobset), False)
    assert names.SUSPENDED_BY_ANNOTATION not in annotations_of(made)
    set_status(inner, conditions=[entry("Suspended", "False", "ResumeJobs")])
    assert conditions(cluster.get(TRAINJOB, "demo", "default")) == [], "nobody had suspended it"


class Killed(BaseException):
    """The client is gone."""


@pytest.mark.parametrize(
    "at", [("created", "JobSet"), ("create", "Secret"), ("created", "Secret"), ("created", "ConfigMap"), ("patch", "JobSet")]
)
def test_a_client_that_dies_on_the_way_leaves_nothing_running_and_the_next_completes_it(
    cluster: JobSetCluster, inner: Inner, at: tuple[str, str]
) -> None:
    def die(verb: str, kind: str) -> None:
        if (verb, kind) == at:
            raise Killed

    request = train_request(runtime=MPI, command=["true"], num_nodes=2)
    inner.before = die
    with pytest.raises(Killed):
        submit_or_adopt(Submission(cluster, request, STEP, "default"))
    (jobset,) = inner.list(JOBSET, "default").items
    assert awaits_companions(jobset)
    assert all(owners_of(companion)[0]["uid"] == uid_of(jobset) for companion in companions(inner))
    inner.before = lambda _verb, _kind: None
    again = submit_or_adopt(Submission(cluster, request, STEP, "default"))
    assert again.adopted
    assert uid_of(again.trainjob) == uid_of(jobset)
    assert again.trainjob["spec"]["suspend"] is False
    assert not awaits_companions(inner.get(JOBSET, name_of(jobset), "default"))
    assert len(companions(inner)) == 2
    set_status(inner, name_of(jobset), conditions=[entry("Suspended", "False", "ResumeJobs")])
    assert conditions(cluster.get(TRAINJOB, name_of(jobset), "default")) == []


def test_jobset_is_deleted_when_a_companion_is_refused(cluster: JobSetCluster, inner: Inner) -> None:
    def refuse(verb: str, kind: str) -> None:
        if (verb, kind) == ("create", "Secret"):
            raise Forbidden("no secrets for you")

    inner.before = refuse
    with pytest.raises(Forbidden, match="no secrets"):
        cluster.create(mpi())
    assert all(jobset["metadata"].get("deletionTimestamp") for jobset in inner.list(JOBSET, "default").items)


def test_a_companion_of_somebody_else_is_not_taken_over(cluster: JobSetCluster, inner: Inner) -> None:
    metadata = {"name": "demo-mpi-ssh-auth", "namespace": "default"}
    inner.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}})
    with pytest.raises(Invalid, match="Secret demo-mpi-ssh-auth exists and has another owner"):
        cluster.create(mpi())


@pytest.mark.medium
def test_create_waits_for_companions_of_an_earlier_job_to_go(cluster: JobSetCluster, inner: Inner) -> None:
    cluster.create(mpi())
    inner.delete(JOBSET, "demo", "default")  # nobody collects garbage here
    waits = []

    def collect(verb: str, kind: str) -> None:
        if (verb, kind) == ("create", "JobSet"):
            waits.append(kind)
            if len(waits) > 1:
                for obj in companions(inner):
                    inner.delete(SECRET if obj["kind"] == "Secret" else CONFIG_MAP, name_of(obj), "default")

    inner.before = collect
    made = RetryingCluster(cluster).create(mpi())
    assert len(waits) == 2
    assert {owners_of(companion)[0]["uid"] for companion in companions(inner)} == {uid_of(made)}


def test_companions_that_were_lost_are_made_again_with_the_resume(cluster: JobSetCluster, inner: Inner) -> None:
    job = cluster.create(mpi())
    suspend_job(cluster, job)
    key = inner.get(SECRET, "demo-mpi-ssh-auth", "default")["data"]
    inner.delete(CONFIG_MAP, "demo-mpi-hostfile", "default")
    cluster.patch(TRAINJOB, "demo", {"spec": {"suspend": False}}, "default")
    assert [name_of(obj) for obj in companions(inner)] == ["demo-mpi-hostfile", "demo-mpi-ssh-auth"]
    assert inner.get(SECRET, "demo-mpi-ssh-auth", "default")["data"] == key


@pytest.mark.medium
@pytest.mark.parametrize("runtime", ["torch-distributed", MPI])
def test_of_two_clients_one_makes_the_job_and_the_other_adopts_it(inner: Inner, runtime: str) -> None:
    start = threading.Barrier(4)

    def submit(_number: int) -> Any:
        start.wait()
        return submit_or_adopt(
            Submission(JobSetCluster(inner), train_request(runtime=runtime, command=["true"], num_nodes=2), STEP, "default")
        )

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(submit, range(4)))
        assert sorted(each.adopted for each in made) == [False, True, True, True]
        (uid,) = {uid_of(each.trainjob) for each in made}
        (jobset,) = inner.list(JOBSET, "default").items
        assert uid_of(jobset) == uid
        assert jobset["spec"]["suspend"] is False
        inner.delete(JOBSET, name_of(jobset), "default")
        for obj in companions(inner):
            inner.delete(SECRET if obj["kind"] == "Secret" else CONFIG_MAP, name_of(obj), "default")


def test_a_job_that_a_user_has_suspended_meanwhile_is_not_let_go(cluster: JobSetCluster, inner: Inner) -> None:
    """The one that completes a held job looks at it, the user suspends, and only then the patch arrives."""
    suspended = []

    def suspend(verb: str, kind: str) -> None:
        if (verb, kind) == ("patch", "JobSet") and not suspended:
            suspended.append(True)
            EmbeddedCluster.patch(
                inner, JOBSET, "demo", {"metadata": {"annotations": {names.SUSPENDED_BY_ANNOTATION: None}}}, "default"
            )

    inner.before = suspend
    assert cluster.create(mpi())["spec"]["suspend"] is True
    assert inner.get(JOBSET, "demo", "default")["spec"]["suspend"] is True


class WithoutSecrets(Inner):
    """An API server on which Secrets may be created, and not read."""

    def get(self, kind: Any, *more: Any) -> Any:
        if kind == SECRET:
            raise Forbidden("secrets cannot be read")
        return super().get(kind, *more)


class WithoutTrainersKinds(Inner):
    """An API server that serves Trainer's API to others."""

    def get(self, kind: Any, *more: Any) -> Any:
        if kind.group == TRAINJOB.group:
            raise Forbidden(f"{kind.plural} cannot be read")
        return super().get(kind, *more)

    def list(self, kind: Any, *more: Any, **options: Any) -> Any:
        if kind.group == TRAINJOB.group:
            raise Forbidden(f"{kind.plural} cannot be listed")
        return super().list(kind, *more, **options)


def test_trainers_kinds_need_not_be_read(inner: Inner, caplog: pytest.LogCaptureFixture) -> None:
    served = frozenset({"trainjobs", "trainingruntimes", "clustertrainingruntimes"})
    cluster = JobSetCluster(WithoutTrainersKinds(inner._server), served=served)
    made = submit_or_adopt(Submission(cluster, train_request(runtime="torch-distributed", command=["true"]), STEP, "default"))
    assert name_of(inner.list(JOBSET, "default").items[0]) == name_of(made.trainjob)
    assert "clustertrainingruntimes cannot be read: a bundled one is used" in caplog.text
    with pytest.raises(RuntimeNotFound, match="clustertrainingruntimes cannot be listed"):
        submit_or_adopt(
            Submission(cluster, train_request(runtime="no-such", command=["true"]), Identity("kfp", "run", "other"), "default")
        )


def test_secrets_need_not_be_read(inner: Inner) -> None:
    blind = WithoutSecrets(inner._server)
    cluster = JobSetCluster(blind)
    made = cluster.create(mpi())
    assert made["spec"]["suspend"] is False
    key = inner.get(SECRET, "demo-mpi-ssh-auth", "default")["data"]
    suspend_job(cluster, made)
    inner.delete(CONFIG_MAP, "demo-mpi-hostfile", "default")
    cluster.patch(TRAINJOB, "demo", {"spec": {"suspend": False}}, "default")
    assert len(companions(inner)) == 2
    assert inner.get(SECRET, "demo-mpi-ssh-auth", "default")["data"] == key, "one that exists is taken for the job's"
