"""TrainJobs on a cluster that has JobSet alone: an API server in memory, whose own TrainJobs nobody touches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from trainwright.api import names
from trainwright.api.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
)
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, CONFIG_MAP, JOBSET, SECRET, TRAINJOB
from trainwright.api.objects import annotations_of, labels_of, name_of, owners_of, uid_of
from trainwright.cluster.jobset_mode import JobSetCluster
from trainwright.cluster.jobset_mode.building import built, is_held
from trainwright.cluster.jobset_mode.presenting import trainjob_of
from trainwright.cluster.jobset_mode.record import MOST_BYTES
from trainwright.cluster.patient import PatientCluster
from trainwright.controlplane.apiserver.rest import ResourceServer
from trainwright.controlplane.apiserver.store import Store
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Phase, TrainJobNameTaken, TrainRequest, phase_of, submit_or_adopt, suspend_job
from trainwright.materialize import materialize
from trainwright.runtimes import RuntimeNotFound, bundled_runtime, bundled_runtimes

STEP = Identity("kfp", "run", "train")
MPI = "deepspeed-distributed"


class Inner(EmbeddedCluster):
    """What the test says happens before a call; without Trainer's API, unless it is `served`."""

    def __init__(self, server: ResourceServer):
        super().__init__(server)
        self.before: Callable[[str, str], None] = lambda _verb, _kind: None
        self.made: list[str] = []

    def create(self, obj: Any) -> Any:
        self.before("create", obj["kind"])
        created = super().create(obj)
        self.made.append(obj["kind"])
        self.before("created", obj["kind"])
        return created

    def patch(self, kind: Any, *args: Any, **more: Any) -> Any:
        self.before("patch", kind.kind)
        return super().patch(kind, *args, **more)

    def get(self, kind: Any, *args: Any) -> Any:
        assert kind.group != TRAINJOB.group, "not served"
        return super().get(kind, *args)


@pytest.fixture
def inner() -> Iterator[Inner]:
    store = Store(":memory:")
    cluster = Inner(ResourceServer(store))
    yield cluster
    cluster.close()
    store.close()


@pytest.fixture
def cluster(inner: Inner) -> JobSetCluster:
    return JobSetCluster(inner)


def trainjob(name: str = "demo", runtime: str = "torch-distributed", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
    spec = {"runtimeRef": {"name": runtime}, "trainer": {"command": ["true"], "numNodes": 2}, **fields}
    return {"apiVersion": TRAINJOB.api_version, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def set_status(inner: Inner, name: str = "demo", **status: Any) -> None:
    inner.patch(JOBSET, name, {"status": {"restarts": 0, **status}}, "default", subresource="status")


def entry(kind: str, status: str = "True", reason: str = "R") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"the {kind} message",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def conditions(job: Any) -> list[tuple[str, str, str, str]]:
    return [(c["type"], c["status"], c["reason"], c["message"]) for c in (job.get("status") or {}).get("conditions") or []]


def test_a_trainjob_comes_back_as_it_was_created(cluster: JobSetCluster, inner: Inner) -> None:
    wanted = trainjob(metadata={"labels": {"team": "a"}, "annotations": {"note": "ü"}})
    made = cluster.create(wanted)
    jobset = inner.get(JOBSET, "demo", "default")
    assert (made["kind"], made["apiVersion"]) == ("TrainJob", TRAINJOB.api_version)
    assert made["metadata"]["uid"] == uid_of(jobset)
    assert made["metadata"]["resourceVersion"] == jobset["metadata"]["resourceVersion"]
    assert (labels_of(made), annotations_of(made)) == ({"team": "a"}, {"note": "ü"})
    assert made["spec"]["trainer"] == wanted["spec"]["trainer"]
    assert made["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    assert made["spec"]["suspend"] is False
    assert "status" not in made
    assert cluster.get(TRAINJOB, "demo", "default") == made
    assert labels_of(jobset)["team"] == "a"
    assert not owners_of(jobset)


@pytest.mark.parametrize("runtime", [name_of(runtime) for runtime in bundled_runtimes()])
def test_the_jobset_is_the_one_that_the_controller_would_make(cluster: JobSetCluster, inner: Inner, runtime: str) -> None:
    wanted = trainjob(runtime=runtime)
    if "torchtune" in runtime:
        wanted["spec"]["trainer"] = {"numNodes": 1}
    made = cluster.create(wanted)
    expected = EmbeddedCluster(ResourceServer(Store(":memory:"))).create(
        materialize(wanted, bundled_runtime(runtime) or {})[-1] | {"metadata": {"name": "demo", "namespace": "default"}}
    )
    assert inner.get(JOBSET, "demo", "default")["spec"] == expected["spec"]
    assert made["spec"]["suspend"] is False


def test_a_jobset_without_a_trainjob_is_none(cluster: JobSetCluster, inner: Inner) -> None:
    cluster.create(trainjob("ours"))
    theirs = inner.get(JOBSET, "ours", "default")
    inner.create({**theirs, "metadata": {"name": "theirs", "namespace": "default"}})
    with pytest.raises(NotFound, match='org "theirs" not found'):
        cluster.get(TRAINJOB, "theirs", "default")
    with pytest.raises(NotFound):
        cluster.delete(TRAINJOB, "theirs", "default")
    with pytest.raises(NotFound):
        cluster.patch(TRAINJOB, "theirs", {"spec": {"suspend": True}}, "default")
    assert [name_of(job) for job in cluster.list(TRAINJOB, "default").items] == ["ours"]
    with pytest.raises(Invalid, match="of somebody else exists"):
        cluster.create(trainjob("theirs"))
    assert inner.get(JOBSET, "theirs", "default")["metadata"].get("labels") is None


def test_lists_are_narrowed_by_the_server(cluster: JobSetCluster) -> None:
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        cluster.create(trainjob(name, metadata={"labels": {"team": team}}))
    assert [name_of(job) for job in cluster.list(TRAINJOB, None, label_selector="team=x").items] == ["a", "b"]
    assert [name_of(job) for job in cluster.list(TRAINJOB, "default", field_selector="metadata.name=c").items] == ["c"]


def test_one_that_was_spoilt_hides_no_other(cluster: JobSetCluster, inner: Inner, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("good", "spoilt"):
        cluster.create(trainjob(name))
    inner.patch(JOBSET, "spoilt", {"metadata": {"annotations": {names.TRAINJOB_ANNOTATION: '{"spec": 1}'}}}, "default")
    assert [name_of(job) for job in cluster.list(TRAINJOB, "default").items] == ["good"]
    assert "spoilt" in caplog.text


def test_a_watch_tells_of_trainjobs(cluster: JobSetCluster, inner: Inner) -> None:
    version = cluster.list(TRAINJOB, "default").resource_version
    cluster.create(trainjob("a", metadata={"labels": {"team": "x"}}))
    foreign = inner.get(JOBSET, "a", "default")
    inner.create({**foreign, "metadata": {"name": "foreign", "namespace": "default"}})
    cluster.patch(TRAINJOB, "a", {"spec": {"suspend": True}}, "default")
    cluster.delete(TRAINJOB, "a", "default")
    events = list(cluster.watch(TRAINJOB, "default", resource_version=version, timeout_seconds=0))
    told = [(event.type, name_of(event.object), event.object["kind"]) for event in events]
    assert told[:3] == [("ADDED", "a", "TrainJob"), ("MODIFIED", "a", "TrainJob"), ("DELETED", "a", "TrainJob")]
    assert [kind for kind, *_ in told[3:]] == ["BOOKMARK"]
    assert events[-1].object["kind"] == "TrainJob"
    assert "spec" not in events[-1].object


RUNNING = {"replicatedJobsStatus": [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]}
FINISHED = {"replicatedJobsStatus": [{"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}]}


@pytest.mark.parametrize(
    ("status", "phase", "told"),
    [
        ({}, Phase.Starting, []),
        (RUNNING, Phase.Running, []),
        (
            {**FINISHED, "conditions": [entry("StartupPolicyCompleted"), entry("Completed", reason="AllJobsCompleted")]},
            Phase.Succeeded,
            [("Complete", "True", "AllJobsCompleted", "the Completed message")],
        ),
        (
            {"conditions": [entry("Failed", reason="FailedJobs")]},
            Phase.Failed,
            [("Failed", "True", "FailedJobs", "the Failed message")],
        ),
        ({"conditions": [entry("Completed", "False")]}, Phase.Starting, []),
    ],
)
def test_the_status_is_that_of_the_jobset(
    cluster: JobSetCluster, inner: Inner, status: dict[str, Any], phase: Phase, told: list[Any]
) -> None:
    cluster.create(trainjob())
    set_status(inner, **status)
    job = cluster.get(TRAINJOB, "demo", "default")
    assert (phase_of(job), conditions(job)) == (phase, told)
    counters = (job.get("status") or {}).get("jobsStatus")
    assert bool(counters) == ("replicatedJobsStatus" in status)
    assert all(len(counter) == 6 for counter in counters or [])


def test_suspending_and_resuming_is_told_as_by_the_controller(cluster: JobSetCluster, inner: Inner) -> None:
    job = cluster.create(trainjob())
    assert suspend_job(cluster, job)
    job = cluster.get(TRAINJOB, "demo", "default")
    assert phase_of(job) is Phase.Suspended
    assert conditions(job) == [("Suspended", "True", "Suspended", "TrainJob is suspended")]
    assert annotations_of(job) == {names.SUSPENDED_BY_ANNOTATION: "trainwright@2"}
    set_status(inner, conditions=[entry("Suspended", reason="SuspendedJobs")])
    resumed = cluster.patch(TRAINJOB, "demo", {"spec": {"suspend": False}}, "default")
    set_status(inner, conditions=[entry("Suspended", "False", reason="ResumeJobs")])
    assert resumed["spec"]["suspend"] is False
    assert conditions(cluster.get(TRAINJOB, "demo", "default")) == [
        ("Suspended", "False", "Resumed", "TrainJob is resumed"),
    ]


def test_a_queued_job_waits_for_its_queue(cluster: JobSetCluster, inner: Inner) -> None:
    request = TrainRequest(runtime=MPI, command=["true"], num_nodes=2, queue_name="gpus")
    job = submit_or_adopt(cluster, request, STEP, "default").trainjob
    jobset = inner.get(JOBSET, name_of(job), "default")
    assert phase_of(job) is Phase.Queued
    assert labels_of(jobset)[names.QUEUE_LABEL] == "gpus"
    assert not is_held(jobset)
    assert len(inner.list(SECRET, "default").items) == 1, "what its pods need is there when the queue lets it start"
    again = submit_or_adopt(cluster, request, STEP, "default").trainjob
    assert phase_of(again) is Phase.Queued


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"spec": {"trainer": {"numNodes": 3}}}, "spec.trainer"),
        ({"spec": {"suspend": True, "runtimePatches": []}}, "spec.runtimePatches"),
        ({"status": {}}, "status"),
        ({"metadata": {"finalizers": []}}, "metadata.finalizers"),
        ({"metadata": {"labels": None}}, "metadata.labels"),
        ({"metadata": {"labels": {names.STANDS_FOR_LABEL: "x"}}}, f"metadata.labels[{names.STANDS_FOR_LABEL}]"),
        ({"metadata": {"annotations": {names.TRAINJOB_ANNOTATION: None}}}, "metadata.annotations"),
    ],
)
def test_what_a_jobset_cannot_take_is_refused(cluster: JobSetCluster, patch: dict[str, Any], field: str) -> None:
    before = cluster.create(trainjob())
    with pytest.raises(Invalid, match="in jobset mode only labels, annotations") as refused:
        cluster.patch(TRAINJOB, "demo", patch, "default")
    assert refused.value.problems[0].field.startswith(field)
    assert cluster.get(TRAINJOB, "demo", "default") == before


def test_preconditions_hold(cluster: JobSetCluster) -> None:
    job = cluster.create(trainjob())
    version = job["metadata"]["resourceVersion"]
    cluster.patch(TRAINJOB, "demo", {"metadata": {"labels": {"a": "b"}}}, "default")
    with pytest.raises(Conflict):
        cluster.patch(TRAINJOB, "demo", {"metadata": {"resourceVersion": version}, "spec": {"suspend": True}}, "default")
    with pytest.raises(Conflict):
        cluster.update({**job, "spec": {**job["spec"], "suspend": True}})
    with pytest.raises(Conflict):
        cluster.delete(TRAINJOB, "demo", "default", uid="another")
    with pytest.raises(Conflict):
        cluster.delete(TRAINJOB, "demo", "default", resource_version=version)
    current = cluster.get(TRAINJOB, "demo", "default")
    changed = cluster.update({**current, "metadata": {**current["metadata"], "labels": {"c": "d"}}})
    assert labels_of(changed) == {"c": "d"}
    assert labels_of(cluster.get(TRAINJOB, "demo", "default")) == {"c": "d"}, "the label that tells it is ours stays"


def test_other_ways_to_write_are_refused(cluster: JobSetCluster) -> None:
    job = cluster.create(trainjob())
    with pytest.raises(MethodNotAllowed, match="merge patches only"):
        cluster.patch(TRAINJOB, "demo", [], "default", patch_type="json")
    for write in (
        lambda: cluster.update_status(job),
        lambda: cluster.patch(TRAINJOB, "demo", {"status": {}}, "default", subresource="status"),
    ):
        with pytest.raises(MethodNotAllowed, match="follows from its JobSet"):
            write()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": {"comand": ["x"]}}, "comand"),
        ({"trainer": {"env": [{"name": "PET_NNODES", "value": "1"}]}}, "PET_NNODES"),
        ({"activeDeadlineSeconds": 60}, "activeDeadlineSeconds"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy"),
        ({"metadata": {"annotations": {names.TRAINJOB_ANNOTATION: "{}"}}}, "it is for JobSets"),
        ({"trainer": {"args": ["x" * 200_000, "y" * 100_000]}}, f"{MOST_BYTES} may be"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(
    cluster: JobSetCluster, inner: Inner, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        cluster.create(trainjob(**changes))
    assert inner.made == []


def test_a_runtime_that_nobody_knows_is_refused_with_those_that_are_there(cluster: JobSetCluster, inner: Inner) -> None:
    with pytest.raises(RuntimeNotFound, match="did you mean 'torch-distributed'"):
        submit_or_adopt(cluster, TrainRequest(runtime="torch-distribute"), STEP, "default")
    assert inner.made == []


def test_a_runtime_cannot_be_brought_where_none_is_served(cluster: JobSetCluster) -> None:
    with pytest.raises(NotFound, match="TRAINWRIGHT_RUNTIMES"):
        cluster.create(bundled_runtime("torch-distributed") or {})


def test_runtimes_of_the_cluster_come_first() -> None:
    store = Store(":memory:")
    inner = EmbeddedCluster(ResourceServer(store))
    own = bundled_runtime("torch-distributed") or {}
    container = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "own:1"
    inner.create(own)
    for served, image in ((frozenset({CLUSTER_TRAINING_RUNTIME.plural}), "own:1"), (frozenset[str](), "pytorch")):
        name = f"job-{len(served)}"
        JobSetCluster(inner, served=served).create(trainjob(name))
        spec = inner.get(JOBSET, name, "default")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert image in spec["containers"][0]["image"]
    inner.close()
    store.close()


def test_a_trainjob_of_the_name_that_nobody_acts_on_is_a_rival() -> None:
    store = Store(":memory:")
    inner = EmbeddedCluster(ResourceServer(store))
    inner.create(bundled_runtime("torch-distributed") or {})
    inner.create(trainjob())
    cluster = JobSetCluster(inner, served=frozenset({"trainjobs", "clustertrainingruntimes"}))
    with pytest.raises(Invalid, match="was not made in jobset mode"):
        cluster.create(trainjob())
    assert inner.list(JOBSET, "default").items == []
    inner.close()
    store.close()


def test_the_jobset_stays_as_long_as_a_trainjob_would(cluster: JobSetCluster, inner: Inner) -> None:
    runtime = bundled_runtime("torch-distributed") or {}
    runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 5
    wanted = {**trainjob(), "spec": cluster.create(trainjob())["spec"]}
    assert "ttlSecondsAfterFinished" not in built(wanted, runtime).jobset["spec"]


def test_what_the_runtime_says_of_the_jobset_is_not_the_trainjobs(cluster: JobSetCluster) -> None:
    runtime = bundled_runtime("torch-distributed") or {}
    metadata = {"labels": {"of": "runtime", "team": "runtime"}, "annotations": {"of": "runtime"}}
    runtime["spec"]["template"]["metadata"] = metadata
    admitted = cluster.create(trainjob("other"))
    wanted = trainjob(metadata={"labels": {"team": "a"}})
    jobset = built({**wanted, "spec": admitted["spec"]}, runtime).jobset
    assert (labels_of(jobset)["of"], labels_of(jobset)["team"]) == ("runtime", "a")
    shown = trainjob_of(jobset)
    assert labels_of(shown) == {"team": "a"}
    assert annotations_of(shown) == {}


# Companions: the key and the list of hosts of an MPI job.


def companions(inner: Inner) -> list[Any]:
    return [obj for kind in (CONFIG_MAP, SECRET) for obj in inner.list(kind, "default").items]


def mpi(name: str = "demo", **fields: Any) -> dict[str, Any]:
    return trainjob(name, MPI, **fields)


def test_companions_go_with_their_jobset_and_are_there_before_it_runs(cluster: JobSetCluster, inner: Inner) -> None:
    seen = []

    def look(verb: str, kind: str) -> None:
        if (verb, kind) == ("patch", "JobSet"):
            seen.append([name_of(obj) for obj in companions(inner)])

    inner.before = look
    made = cluster.create(mpi())
    jobset = inner.get(JOBSET, "demo", "default")
    assert inner.made == ["JobSet", "Secret", "ConfigMap"]
    assert seen == [["demo-mpi-hostfile", "demo-mpi-ssh-auth"]]
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

    request = TrainRequest(runtime=MPI, command=["true"], num_nodes=2)
    inner.before = die
    with pytest.raises(Killed):
        submit_or_adopt(cluster, request, STEP, "default")
    (jobset,) = inner.list(JOBSET, "default").items
    assert is_held(jobset)
    assert all(owners_of(companion)[0]["uid"] == uid_of(jobset) for companion in companions(inner))
    inner.before = lambda _verb, _kind: None
    again = submit_or_adopt(cluster, request, STEP, "default")
    assert again.adopted
    assert uid_of(again.trainjob) == uid_of(jobset)
    assert again.trainjob["spec"]["suspend"] is False
    assert not is_held(inner.get(JOBSET, name_of(jobset), "default"))
    assert len(companions(inner)) == 2
    set_status(inner, name_of(jobset), conditions=[entry("Suspended", "False", "ResumeJobs")])
    assert conditions(cluster.get(TRAINJOB, name_of(jobset), "default")) == []


@pytest.mark.medium
def test_an_error_on_the_way_that_passes_is_tried_again(cluster: JobSetCluster, inner: Inner) -> None:
    failing = [ServiceUnavailable("busy"), ServiceUnavailable("busy")]

    def fail(verb: str, kind: str) -> None:
        if (verb, kind) == ("create", "ConfigMap") and failing:
            raise failing.pop()

    inner.before = fail
    made = PatientCluster(cluster).create(mpi())
    assert made["spec"]["suspend"] is False
    assert len(companions(inner)) == 2


def test_what_can_never_be_made_takes_the_jobset_back(cluster: JobSetCluster, inner: Inner) -> None:
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
    with pytest.raises(Invalid, match="Secret demo-mpi-ssh-auth exists and belongs to somebody else"):
        cluster.create(mpi())


@pytest.mark.medium
def test_what_an_earlier_job_has_left_is_waited_for(cluster: JobSetCluster, inner: Inner) -> None:
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
    made = PatientCluster(cluster).create(mpi())
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


@pytest.mark.parametrize("runtime", ["torch-distributed", MPI])
def test_of_two_clients_one_makes_the_job_and_the_other_adopts_it(inner: Inner, runtime: str) -> None:
    start = threading.Barrier(4)

    def submit(_number: int) -> Any:
        start.wait()
        return submit_or_adopt(
            JobSetCluster(inner), TrainRequest(runtime=runtime, command=["true"], num_nodes=2), STEP, "default"
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


def test_a_failed_job_is_followed_by_the_next_generation(cluster: JobSetCluster, inner: Inner) -> None:
    request = TrainRequest(runtime="torch-distributed", command=["true"])
    first = submit_or_adopt(cluster, request, STEP, "default")
    set_status(inner, first.name, conditions=[entry("Failed", reason="FailedJobs")])
    second = submit_or_adopt(cluster, request, STEP, "default")
    assert (second.generation, second.adopted, str(second.mode)) == (2, False, "jobset")
    with pytest.raises(TrainJobNameTaken):
        submit_or_adopt(cluster, TrainRequest(runtime="torch-distributed", command=["false"]), STEP, "default")
    assert second.runtime.found == "bundled"


def test_the_deadline_is_kept_by_whoever_waits(cluster: JobSetCluster) -> None:
    request = TrainRequest(runtime="torch-distributed", command=["true"], active_deadline_seconds=60)
    made = submit_or_adopt(cluster, request, STEP, "default")
    assert made.run_deadline == 60
    assert "activeDeadlineSeconds" not in made.trainjob["spec"]
    assert submit_or_adopt(cluster, request, STEP, "default").adopted


def test_a_name_that_exists_is_told_as_such(cluster: JobSetCluster) -> None:
    cluster.create(trainjob())
    with pytest.raises(AlreadyExists):
        cluster.create(trainjob())
