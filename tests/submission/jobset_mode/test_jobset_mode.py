"""TrainJobs on a cluster that has JobSet alone: an API server in memory, whose own TrainJobs nobody touches."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, cluster_in_memory, train_request
from support.jobset_mode_cluster import MPI, STEP, Inner, conditions, entry, set_status, two_node_trainjob

from trainwright.api import names
from trainwright.api.errors import (
    Conflict,
    Invalid,
    MethodNotAllowed,
    NotFound,
)
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, JOBSET, SECRET, TRAINJOB
from trainwright.api.objects import annotations_of, labels_of, name_of, owners_of, uid_of
from trainwright.jobs import Phase, Submission, phase_of, submit_or_adopt, suspend_job
from trainwright.materialize import materialize
from trainwright.runtimes import RuntimeNotFound, bundled_runtimes
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.submission.jobset_mode.conversion import MAX_ANNOTATION_BYTES, awaits_companions


def test_a_trainjob_comes_back_as_it_was_created(cluster: JobSetCluster, inner: Inner) -> None:
    wanted = two_node_trainjob(metadata={"labels": {"team": "a"}, "annotations": {"note": "ü"}})
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
    wanted = two_node_trainjob(runtime=runtime)
    if "torchtune" in runtime:
        wanted["spec"]["trainer"] = {"numNodes": 1}
    made = cluster.create(wanted)
    jobset = materialize(wanted, catalogue_runtime(runtime))[-1] | {"metadata": {"name": "demo", "namespace": "default"}}
    with cluster_in_memory() as other:
        expected = other.create(jobset)
    assert inner.get(JOBSET, "demo", "default")["spec"] == expected["spec"]
    assert made["spec"]["suspend"] is False


def test_a_jobset_without_a_trainjob_is_none(cluster: JobSetCluster, inner: Inner) -> None:
    cluster.create(two_node_trainjob("ours"))
    theirs = inner.get(JOBSET, "ours", "default")
    inner.create({**theirs, "metadata": {"name": "theirs", "namespace": "default"}})
    with pytest.raises(NotFound, match='org "theirs" not found'):
        cluster.get(TRAINJOB, "theirs", "default")
    with pytest.raises(NotFound):
        cluster.delete(TRAINJOB, "theirs", "default")
    with pytest.raises(NotFound):
        cluster.patch(TRAINJOB, "theirs", {"spec": {"suspend": True}}, "default")
    assert [name_of(job) for job in cluster.list(TRAINJOB, "default").items] == ["ours"]
    with pytest.raises(Invalid, match="of another owner exists"):
        cluster.create(two_node_trainjob("theirs"))
    assert inner.get(JOBSET, "theirs", "default")["metadata"].get("labels") is None


def test_corrupt_jobset_does_not_hide_the_others(cluster: JobSetCluster, inner: Inner, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("good", "spoilt"):
        cluster.create(two_node_trainjob(name))
    inner.patch(JOBSET, "spoilt", {"metadata": {"annotations": {names.TRAINJOB_ANNOTATION: '{"spec": 1}'}}}, "default")
    assert [name_of(job) for job in cluster.list(TRAINJOB, "default").items] == ["good"]
    assert "spoilt" in caplog.text


def test_a_watch_tells_of_trainjobs(cluster: JobSetCluster, inner: Inner) -> None:
    version = cluster.list(TRAINJOB, "default").resource_version
    cluster.create(two_node_trainjob("a", metadata={"labels": {"team": "x"}}))
    foreign = inner.get(JOBSET, "a", "default")
    inner.create({**foreign, "metadata": {"name": "foreign", "namespace": "default"}})
    cluster.patch(TRAINJOB, "a", {"spec": {"suspend": True}}, "default")
    cluster.delete(TRAINJOB, "a", "default")
    events = list(cluster.watch(TRAINJOB, "default", resource_version=version, timeout_seconds=0))
    stored = [(event.type, name_of(event.object), event.object["kind"]) for event in events]
    assert stored[:3] == [("ADDED", "a", "TrainJob"), ("MODIFIED", "a", "TrainJob"), ("DELETED", "a", "TrainJob")]
    assert [kind for kind, *_ in stored[3:]] == ["BOOKMARK"]
    assert events[-1].object["kind"] == "TrainJob"
    assert "spec" not in events[-1].object


RUNNING = {"replicatedJobsStatus": [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]}
FINISHED = {"replicatedJobsStatus": [{"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}]}


@pytest.mark.parametrize(
    ("status", "phase", "stored"),
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
    cluster: JobSetCluster, inner: Inner, status: dict[str, Any], phase: Phase, stored: list[Any]
) -> None:
    cluster.create(two_node_trainjob())
    set_status(inner, **status)
    job = cluster.get(TRAINJOB, "demo", "default")
    assert (phase_of(job), conditions(job)) == (phase, stored)
    counters = (job.get("status") or {}).get("jobsStatus")
    assert bool(counters) == ("replicatedJobsStatus" in status)
    assert all(len(counter) == 6 for counter in counters or [])


def test_suspending_and_resuming_is_told_as_by_the_controller(cluster: JobSetCluster, inner: Inner) -> None:
    job = cluster.create(two_node_trainjob())
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
    request = train_request(runtime=MPI, command=["true"], num_nodes=2, queue_name="gpus")
    job = submit_or_adopt(Submission(cluster, request, STEP, "default")).trainjob
    jobset = inner.get(JOBSET, name_of(job), "default")
    assert phase_of(job) is Phase.Queued
    assert labels_of(jobset)[names.QUEUE_LABEL] == "gpus"
    assert not awaits_companions(jobset)
    assert len(inner.list(SECRET, "default").items) == 1, "what its pods need is there when the queue lets it start"
    again = submit_or_adopt(Submission(cluster, request, STEP, "default")).trainjob
    assert phase_of(again) is Phase.Queued


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"spec": {"trainer": {"numNodes": 3}}}, "spec.trainer"),
        ({"spec": {"suspend": True, "runtimePatches": []}}, "spec.runtimePatches"),
        ({"status": {}}, "status"),
        ({"metadata": {"finalizers": []}}, "metadata.finalizers"),
        ({"metadata": {"labels": None}}, "metadata.labels"),
        ({"metadata": {"labels": {names.SOURCE_KIND_LABEL: "x"}}}, f"metadata.labels[{names.SOURCE_KIND_LABEL}]"),
        ({"metadata": {"annotations": {names.TRAINJOB_ANNOTATION: None}}}, "metadata.annotations"),
    ],
)
def test_patches_a_jobset_cannot_take_are_refused(cluster: JobSetCluster, patch: dict[str, Any], field: str) -> None:
    before = cluster.create(two_node_trainjob())
    with pytest.raises(Invalid, match="in jobset mode only labels, annotations") as refused:
        cluster.patch(TRAINJOB, "demo", patch, "default")
    assert refused.value.problems[0].field.startswith(field)
    assert cluster.get(TRAINJOB, "demo", "default") == before


def test_preconditions_hold(cluster: JobSetCluster) -> None:
    job = cluster.create(two_node_trainjob())
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
    job = cluster.create(two_node_trainjob())
    with pytest.raises(MethodNotAllowed, match="merge patches only"):
        cluster.patch(TRAINJOB, "demo", [], "default", patch_type="json")
    for write in (
        lambda: cluster.update_status(job),
        lambda: cluster.patch(TRAINJOB, "demo", {"status": {}}, "default", subresource="status"),
    ):
        with pytest.raises(MethodNotAllowed, match="derived from its JobSet"):
            write()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": {"comand": ["x"]}}, "comand"),
        ({"trainer": {"env": [{"name": "PET_NNODES", "value": "1"}]}}, "PET_NNODES"),
        ({"activeDeadlineSeconds": 60}, "activeDeadlineSeconds"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy"),
        ({"metadata": {"annotations": {names.TRAINJOB_ANNOTATION: "{}"}}}, "it is reserved for JobSets"),
        ({"trainer": {"args": ["x" * 200_000, "y" * 100_000]}}, f"at most {MAX_ANNOTATION_BYTES} are allowed"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(
    cluster: JobSetCluster, inner: Inner, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        cluster.create(two_node_trainjob(**changes))
    assert inner.made == []


def test_a_runtime_that_nobody_knows_is_refused_with_those_that_are_there(cluster: JobSetCluster, inner: Inner) -> None:
    with pytest.raises(RuntimeNotFound, match="did you mean 'torch-distributed'"):
        submit_or_adopt(Submission(cluster, train_request(runtime="torch-distribute"), STEP, "default"))
    assert inner.made == []


def test_runtimes_of_the_cluster_come_first() -> None:
    own = catalogue_runtime("torch-distributed")
    container = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "own:1"
    with cluster_in_memory(own) as inner:
        for served, image in ((frozenset({CLUSTER_TRAINING_RUNTIME.plural}), "own:1"), (frozenset[str](), "pytorch")):
            name = f"job-{len(served)}"
            JobSetCluster(inner, served=served).create(two_node_trainjob(name))
            spec = inner.get(JOBSET, name, "default")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            assert image in spec["containers"][0]["image"]


def test_a_trainjob_of_the_name_that_nobody_acts_on_is_a_rival() -> None:
    with cluster_in_memory(catalogue_runtime("torch-distributed"), two_node_trainjob()) as inner:
        cluster = JobSetCluster(inner, served=frozenset({"trainjobs", "clustertrainingruntimes"}))
        with pytest.raises(Invalid, match="was not created in jobset mode"):
            cluster.create(two_node_trainjob())
        assert inner.list(JOBSET, "default").items == []
