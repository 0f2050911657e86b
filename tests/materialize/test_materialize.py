"""Materialization as a function: pure, repeatable, and refusing before it builds."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, trainjob

from trainwright.api.errors import Invalid
from trainwright.api.objects import copy_of, named
from trainwright.materialize import ProgressReports, Settings, materialize


def node(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The container that trains."""
    replicated = named(objects[-1]["spec"]["replicatedJobs"], "node")
    assert replicated is not None
    container: dict[str, Any] = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    return container


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_the_same_input_gives_the_same_objects_and_stays_as_it_is() -> None:
    job, rt = trainjob(trainer={"numNodes": 2}), catalogue_runtime("torch-distributed")
    before = copy_of(job), copy_of(rt)
    assert materialize(job, rt) == materialize(job, rt)
    assert (job, rt) == before


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({}, "1"),
        ({"resourcesPerNode": {"requests": {"cpu": "2500m"}}}, "3"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}, "auto"),
        ({"numProcPerNode": 8, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}, "8"),
    ],
)
def test_processes_on_a_node(trainer: dict[str, Any], processes: str) -> None:
    assert (
        env(node(materialize(trainjob(trainer=trainer), catalogue_runtime("torch-distributed"))))["PET_NPROC_PER_NODE"]
        == processes
    )


def test_rendezvous_of_torch() -> None:
    container = node(
        materialize(
            trainjob(trainer={"numNodes": 3, "env": [{"name": "A", "value": "1"}]}), catalogue_runtime("torch-distributed")
        )
    )
    assert env(container) | {"PET_NODE_RANK": None} == {
        "A": "1",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": None,
        "PET_MASTER_ADDR": "demo-node-0-0.demo",
        "PET_MASTER_PORT": "29500",
    }
    assert container["ports"] == [{"containerPort": 29500}]


def test_without_a_trainer_there_is_no_rendezvous() -> None:
    assert "env" not in node(materialize(trainjob(), catalogue_runtime("torch-distributed")))


def test_initializers_of_trl_sft() -> None:
    dataset = {"storageUri": "hf://o/d", "env": [{"name": "X", "value": "1"}], "secretRef": {"name": "hub"}}
    objects = materialize(trainjob(runtime="trl-sft", initializer={"dataset": dataset}), catalogue_runtime("trl-sft"))
    replicated = named(objects[-1]["spec"]["replicatedJobs"], "dataset-initializer")
    assert replicated is not None
    container = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    assert env(container)["STORAGE_URI"] == "hf://o/d"
    assert env(container)["X"] == "1"
    assert container["envFrom"] == [{"secretRef": {"name": "hub"}}]
    last = named(objects[-1]["spec"]["replicatedJobs"], "node")
    assert last is not None
    assert [entry["name"] for entry in last["dependsOn"]] == ["dataset-initializer", "model-initializer"]


def test_progress_reports_are_wired_when_they_are_taken() -> None:
    settings = Settings(progress=ProgressReports("https://127.0.0.1:1234", "PEM"))
    config, jobset = materialize(trainjob(trainer={}), catalogue_runtime("torch-distributed"), settings=settings)
    assert config["data"] == {"ca.crt": "PEM"}
    container = node([jobset])
    url = "https://127.0.0.1:1234/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/demo/status"
    assert env(container)["KUBEFLOW_TRAINER_SERVER_URL"] == url
    assert container["volumeMounts"][0]["mountPath"] == "/var/run/secrets/kubeflow/trainer"


def patch_of(job: str) -> dict[str, Any]:
    return {"template": {"spec": {"replicatedJobs": [{"name": job}]}}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"trainer": {"env": [{"name": "PET_NNODES", "value": "9"}]}}, "PET_NNODES"),
        ({"initializer": {"model": {"storageUri": "hf://a/b"}}}, "model-initializer"),
        ({"trainer": {"command": ["tune", "run"]}}, "supported pretrained model"),
        ({"runtimePatches": [{"manager": "a.b/c", "trainingRuntimeSpec": patch_of("nod")}]}, "'nod'"),
    ],
)
def test_invalid_trainjobs_are_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        materialize(trainjob(**spec), catalogue_runtime("torch-distributed"))


def test_a_name_too_long_for_its_pods_is_refused_at_once() -> None:
    long = trainjob()
    long["metadata"]["name"] = "a" * 49
    with pytest.raises(Invalid, match="JobSet name is too long"):
        materialize(long, catalogue_runtime("torch-distributed"))


def test_somebody_elses_trainjob_is_left_alone() -> None:
    assert materialize(trainjob(managedBy="kueue.x-k8s.io/multikueue"), catalogue_runtime("torch-distributed")) == []
