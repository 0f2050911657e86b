"""The objects of a TrainJob on the page: built with contributors, and live, without secrets."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml
from calls import call
from factories import cluster_in_memory, job, jobset, pod, replicated_job, runtime, trainjob
from support.refusing_cluster import refusing

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLUSTER_TRAINING_RUNTIME, CONFIG_MAP, SECRET, TRAINJOB
from trainwright.api.objects import owner_reference
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.materialize import build_snapshot
from trainwright.ui.job_objects import show_live_object, show_objects

Obj = dict[str, Any]
PATH = {"namespace": "default", "name": "demo"}
LABEL = "jobset.sigs.k8s.io/jobset-name"
MPI = runtime(
    "rt", replicated_job("launcher", step="trainer"), replicated_job("node"), policy={"mpi": {"mpiImplementation": "OpenMPI"}}
)


def created(cluster: EmbeddedCluster, rt: Obj = MPI, **fields: Any) -> Obj:
    cluster.create(rt)
    return cluster.create(trainjob(runtime="rt", **fields))


def test_objects_are_built_from_the_snapshot() -> None:
    with cluster_in_memory() as cluster:
        owner = created(cluster)
        cluster.create(build_snapshot(owner, MPI))
        changed = cluster.get(CLUSTER_TRAINING_RUNTIME, "rt")
        changed["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
            "image"
        ] = "new"
        cluster.update(changed)
        answer = show_objects(call(cluster, PATH))
    assert answer["runtime"] == {"kind": "ClusterTrainingRuntime", "name": "rt", "source": "snapshot", "note": ""}
    assert answer["problem"] is None
    assert [each["kind"] for each in answer["built"]] == ["Secret", "ConfigMap", "JobSet"]
    assert "image: new" not in answer["built"][-1]["yaml"]["text"]
    assert {"runtime", "mpi", "jobset", "default"} <= set(answer["built"][-1]["yaml"]["contributors"])
    orjson.dumps(answer)


def test_without_a_snapshot_the_current_runtime_is_used_and_named() -> None:
    with cluster_in_memory() as cluster:
        created(cluster)
        answer = show_objects(call(cluster, PATH))
    assert answer["runtime"]["source"] == "cluster"
    assert "no snapshot" in answer["runtime"]["note"]


def test_a_runtime_that_is_gone_is_a_problem_and_live_objects_are_still_shown() -> None:
    with cluster_in_memory(pod("demo-node-0-0-x", labels={LABEL: "demo"})) as cluster:
        created(cluster)
        cluster.delete(CLUSTER_TRAINING_RUNTIME, "rt")
        answer = show_objects(call(cluster, PATH))
    assert answer["built"] == []
    assert answer["problem"]["reason"] == "RuntimeNotFound"
    assert [each["name"] for each in answer["live"]] == ["demo-node-0-0-x"]


def test_a_job_of_another_manager_says_who_builds_its_objects() -> None:
    with cluster_in_memory() as cluster:
        created(cluster, managedBy="kueue.x-k8s.io/multikueue")
        answer = show_objects(call(cluster, PATH))
    assert answer["built"] == []
    assert answer["problem"] == {"reason": "ManagedBy", "message": "kueue.x-k8s.io/multikueue builds them"}


def test_data_of_secrets_never_leaves_the_server() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-mpi-ssh-auth", "namespace": "default"}}
    secret["data"] = {"ssh-privatekey": "VE9QU0VDUkVU"}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"ssh-privatekey":"VE9QU0VDUkVU"}}', "kept": "1"}
    secret["metadata"]["annotations"] = applied  # type: ignore[index]
    with cluster_in_memory() as cluster:
        secret["metadata"]["ownerReferences"] = [owner_reference(created(cluster))]  # type: ignore[index]
        cluster.create(secret)
        answer = show_objects(call(cluster, PATH))
        shown = show_live_object(call(cluster, PATH, type="v1/Secret", object="demo-mpi-ssh-auth"))
    assert "v1/Secret" in [each["type"] for each in answer["live"]]
    assert b"VE9Q" not in orjson.dumps([answer, shown])
    assert b"placeholder" not in orjson.dumps(answer)
    assert yaml.safe_load(shown["text"])["data"] == {"ssh-privatekey": "(hidden)"}
    assert yaml.safe_load(shown["text"])["metadata"]["annotations"] == {"kept": "1"}


def test_a_kind_that_may_not_be_read_does_not_hide_the_others() -> None:
    with cluster_in_memory() as cluster:
        owner = created(cluster)
        child = jobset("demo", replicated_job(), metadata={"ownerReferences": [owner_reference(owner)]})
        cluster.create(child)
        cluster.create(job("demo-node-0", labels={LABEL: "demo"}))
        denying = refusing(cluster, "get", "list", kinds=[SECRET, CONFIG_MAP])
        answer = show_objects(call(denying, PATH))
    assert [each["kind"] for each in answer["live"]] == ["JobSet", "Job"]
    assert {each["kind"]: each["reason"] for each in answer["denied"]} == {"Secret": "Forbidden", "ConfigMap": "Forbidden"}
    assert "may not be read" in answer["runtime"]["note"]
    assert answer["built"]


def test_live_objects_have_no_managed_fields() -> None:
    with cluster_in_memory() as cluster:
        owner = created(cluster)
        cluster.create(jobset("demo", replicated_job(), metadata={"ownerReferences": [owner_reference(owner)]}))
        shown = show_live_object(call(cluster, PATH, type="jobset.x-k8s.io/v1alpha2/JobSet", object="demo"))
    metadata = yaml.safe_load(shown["text"])["metadata"]
    assert metadata["uid"] == shown["uid"]
    assert "managedFields" not in metadata


def test_objects_of_others_are_not_found() -> None:
    with cluster_in_memory(pod("other")) as cluster:
        created(cluster)
        with pytest.raises(NotFound, match="does not belong"):
            show_live_object(call(cluster, PATH, type="v1/Pod", object="other"))
        with pytest.raises(ValueError, match="type: expected one of"):
            show_live_object(call(cluster, PATH, type="v1/Node", object="n"))
        with pytest.raises(NotFound):
            show_objects(call(cluster, {"namespace": "default", "name": "nobody"}))


def test_progress_reports_of_the_controller_are_part_of_the_built_objects() -> None:
    url = "https://reports:1/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/demo/status"
    container = {"name": "node", "image": "i", "env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": url}]}
    with cluster_in_memory() as cluster:
        references = [owner_reference(created(cluster, runtime("rt", policy={"torch": {}})))]
        node = replicated_job(pod_spec={"containers": [container]})
        cluster.create(jobset("demo", node, metadata={"ownerReferences": references}))
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": "PEM"}}
        cluster.create(config | {"metadata": {"name": "demo-tls-config", "namespace": "default", "ownerReferences": references}})
        answer = show_objects(call(cluster, PATH))
    assert [each["name"] for each in answer["built"]] == ["demo-tls-config", "demo"]
    assert url in answer["built"][-1]["yaml"]["text"]
    assert TRAINJOB.kind not in [each["kind"] for each in answer["live"]]
