"""Names of old pods in a job's texts become the new ones where they certainly are host names, and are noted elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.migration import migrate


def old(*args: str, kind: str = "PyTorchJob", name: str = "tide", **container: Any) -> dict[str, Any]:
    """An old job with a leader and two workers, all with these arguments."""
    field, leader, version = {
        "PyTorchJob": ("pytorchReplicaSpecs", "Master", "kubeflow.org/v1"),
        "MPIJob": ("mpiReplicaSpecs", "Launcher", "kubeflow.org/v2beta1"),
    }[kind]
    one = {"name": "pytorch", "image": "i:1", "args": list(args), **container}
    template = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [one]}}
    specs = {leader: {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": {field: specs}}


def container_of(job: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    migrated = migrate(job)
    replicated = migrated.objects[0]["spec"]["template"]["spec"]["replicatedJobs"][0]
    return replicated["template"]["spec"]["template"]["spec"]["containers"][0], [str(note) for note in migrated.notes]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--rdzv_endpoint=tide-worker-0:23456", "--rdzv_endpoint=tide-node-0-1.tide:23456"),
        ("tide-master-0:$PORT", "tide-node-0-0.tide:$PORT"),
        ("--master_addr tide-master-0 x", "--master_addr tide-node-0-0.tide x"),
        ("MASTER='tide-master-0' ./x", "MASTER='tide-node-0-0.tide' ./x"),
        ("until nslookup tide-master-0; do sleep 1; done", "until nslookup tide-node-0-0.tide; do sleep 1; done"),
        ("--hosts=tide-worker-0,tide-worker-1", "--hosts=tide-node-0-1.tide,tide-node-0-2.tide"),
        ("http://tide-worker-1/metrics", "http://tide-node-0-2.tide/metrics"),
        ("ssh user@tide-worker-1", "ssh user@tide-node-0-2.tide"),
        ("tide-worker-0.ns.svc.cluster.local", "tide-node-0-1.tide.ns.svc.cluster.local"),
        ("tide-worker-0.ns", "tide-node-0-1.tide.ns"),
    ],
)
def test_host_names_are_rewritten(given: str, expected: str) -> None:
    container, notes = container_of(old(given))
    assert container["args"] == [expected]
    assert any(
        note.startswith("spec.pytorchReplicaSpecs.Master.template.spec.containers[0].args[0]: the host tide-") for note in notes
    )


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ("--run-name=tide-worker-0", "tide-worker-0 is now tide-node-0-1.tide"),
        ("/logs/tide-master-0/x", "tide-master-0 is now tide-node-0-0.tide"),
        ("tide-worker-7:80", "the job has no pod tide-worker-7"),
        ("tide-worker-0: started", "tide-worker-0 is now tide-node-0-1.tide"),
        ("gzip tide-worker-0", "tide-worker-0 is now tide-node-0-1.tide"),
        (f"tide-worker-{'9' * 5000}:80", "tide-worker-0 is now tide-node-0-1"),
        ("tide-worker-0.log", "may build names of pods, or parts of them: tide-master-0 is now tide-node-0-0"),
        ("tide-worker-$i:80", "tide-worker-0 is now tide-node-0-1"),
        ("${JOB}-master-0:80", "tide-master-0 is now tide-node-0-0"),
        ("RANK=${HOSTNAME##*-} python x", "tide-worker-0 is now tide-node-0-1"),
    ],
)
def test_texts_that_may_be_host_names_are_noted(given: str, note: str) -> None:
    container, notes = container_of(old(given))
    assert container["args"] == [given]
    assert any(note in one for one in notes)


def test_texts_that_are_not_names_of_pods_stay_without_a_note() -> None:
    args = ["--num-worker-threads=3", "low-tide-worker-0", "tide-worker", "--master-0", "tide-node-0-0.tide"]
    container, notes = container_of(old(*args))
    assert container["args"] == args
    assert [note for note in notes if ".args[" in note] == []


def test_variables_are_rewritten_by_their_names_and_options_by_the_one_before() -> None:
    env = [{"name": "CHIEF_HOST", "value": "tide-master-0"}, {"name": "RUN_NAME", "value": "tide-master-0"}]
    container, notes = container_of(old("--master", "tide-master-0", "--name", "tide-master-0", env=env))
    assert container["args"] == ["--master", "tide-node-0-0.tide", "--name", "tide-master-0"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert (values["CHIEF_HOST"], values["RUN_NAME"]) == ("tide-node-0-0.tide", "tide-master-0")
    assert sum("if this is a host name" in note for note in notes) == 2


def test_hosts_of_an_mpi_job_have_its_subdomain_and_the_launcher_no_number() -> None:
    args = ["-H", "tide-worker-1.tide.ns.svc:2,tide-worker-0.tide:2", "--report=http://tide-launcher/x"]
    container, _ = container_of(old(*args, kind="MPIJob"))
    hosts = "tide-node-0-1.tide.ns.svc:2,tide-node-0-0.tide:2"
    assert container["args"] == ["-H", hosts, "--report=http://tide-launcher-0-0.tide/x"]


def test_the_operators_labels_are_kept_for_jobs_that_read_them() -> None:
    paths = {"INDEX": "replica-index", "TYPE": "replica-type", "JOB": "job-name"}
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['training.kubeflow.org/{label}']"}}}
        for name, label in paths.items()
    ]
    migrated = migrate(old("x", env=[*env, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]))
    node, worker = migrated.objects[0]["spec"]["template"]["spec"]["replicatedJobs"]
    for replicated, type_, index in ((node, "master", "completion-index"), (worker, "worker", "job-index")):
        template = replicated["template"]["spec"]["template"]
        assert template["metadata"]["labels"] == {
            "training.kubeflow.org/job-name": "tide",
            "training.kubeflow.org/replica-type": type_,
        }
        read = {variable["name"]: variable for variable in template["spec"]["containers"][0]["env"]}
        assert index in read["INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert read["JOB"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
    assert any("end in random letters" in note.text for note in migrated.notes)


def test_names_of_a_job_with_a_generated_name_are_left_alone() -> None:
    job = old("--master=tide-worker-0:80")
    job["metadata"] = {"generateName": "tide-"}
    container, notes = container_of(job)
    assert container["args"] == ["--master=tide-worker-0:80"]
    assert [note for note in notes if ".args[" in note] == []
