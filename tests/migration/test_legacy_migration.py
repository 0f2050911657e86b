"""TrainJobs and runtimes of kubeflow.org/v2alpha1 become ones that today's Trainer runs, or are refused by their field."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from factories import runtime, trainjob
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from trainwright.api.admission.admit import admit
from trainwright.api.errors import BadRequest, Invalid
from trainwright.cli.app import app
from trainwright.materialize import materialize
from trainwright.migration import is_legacy, migrate


def step(name: str, *containers: str, **more: Any) -> dict[str, Any]:
    mounts = [{"name": "initializer", "mountPath": "/workspace"}]
    pod = {
        "containers": [{"name": each, "image": f"example.com/{each}:1", "volumeMounts": mounts} for each in containers],
        "volumes": [{"name": "initializer", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    return {"name": name, "template": {"spec": {"template": {"spec": pod}}}, **more}


def early_runtime(*jobs: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """As training-operator 1.9 shipped them: steps known by the names of jobs and containers."""
    policy = policy or {"torch": {"numProcPerNode": "auto"}}
    return {**runtime("early", *jobs, policy=policy), "apiVersion": "kubeflow.org/v2alpha1"}


def early_trainjob(**spec: Any) -> dict[str, Any]:
    spec = {"runtimeRef": {"name": "early", "apiGroup": "kubeflow.org", "kind": "ClusterTrainingRuntime"}, **spec}
    made = trainjob("job", namespace="team", status={"conditions": "old"})
    return {**made, "apiVersion": "kubeflow.org/v2alpha1", "spec": spec}


FULL = (
    step("Initializer", "dataset-initializer", "model-initializer"),
    step("trainer-node", "trainer", dependsOn=[{"name": "Initializer", "status": "Complete"}]),
)


def jobset_of(old_trainjob: dict[str, Any], old_runtime: dict[str, Any]) -> dict[str, Any]:
    """What today's Trainer builds of the two."""
    given = copy.deepcopy((old_trainjob, old_runtime))
    new = [migrate(obj).objects[0] for obj in (old_trainjob, old_runtime)]
    assert (old_trainjob, old_runtime) == given
    return next(obj for obj in materialize(*(admit(obj).object for obj in new)) if obj["kind"] == "JobSet")


def pods(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in made["spec"]["replicatedJobs"]}


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in pod["containers"][0].get("env") or []}


def test_a_trainjob_and_its_runtime_run_on_todays_trainer() -> None:
    secret = {"name": "hub", "namespace": "team"}
    made = jobset_of(
        early_trainjob(
            trainer={"image": "example.com/mine:2", "command": ["python", "x.py"], "numNodes": 3, "numProcPerNode": "2"},
            datasetConfig={"storageUri": "tatsu-lab/alpaca", "secretRef": secret, "env": [{"name": "A", "value": "1"}]},
            modelConfig={"input": {"storageUri": "hf://a/b"}, "output": {"storageUri": "s3://out"}},
            managedBy="kubeflow.org/trainjob-controller",
        ),
        early_runtime(*FULL),
    )
    found = pods(made)
    assert list(found) == ["dataset-initializer", "model-initializer", "node"]
    assert {name: [c["name"] for c in pod["containers"]] for name, pod in found.items()} == {
        "dataset-initializer": ["dataset-initializer"],
        "model-initializer": ["model-initializer"],
        "node": ["node"],
    }
    node = found["node"]["containers"][0]
    assert (node["image"], node["command"]) == ("example.com/mine:2", ["python", "x.py"])
    assert variables(found["node"])["PET_NNODES"] == "3"
    assert variables(found["node"])["PET_MASTER_ADDR"] == "job-node-0-0.job"
    assert variables(found["dataset-initializer"]) == {"STORAGE_URI": "hf://tatsu-lab/alpaca", "A": "1"}
    assert variables(found["model-initializer"]) == {"STORAGE_URI": "hf://a/b"}
    assert found["dataset-initializer"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "hub"}}]
    node_job = next(job for job in made["spec"]["replicatedJobs"] if job["name"] == "node")
    assert [entry["name"] for entry in node_job["dependsOn"]] == ["dataset-initializer", "model-initializer"]


def test_an_initializer_of_one_kind_is_one_job() -> None:
    made = pods(
        jobset_of(
            early_trainjob(), early_runtime(step("initializer", "model-initializer", "sidecar"), step("trainer-node", "trainer"))
        )
    )
    assert list(made) == ["model-initializer", "node"]
    assert [container["name"] for container in made["model-initializer"]["containers"]] == ["model-initializer", "sidecar"]


def test_the_launcher_is_what_a_trainjob_changes_with_mpi() -> None:
    policy = {
        "mpi": {"numProcPerNode": 2, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/ssh", "runLauncherAsNode": False}
    }
    made = jobset_of(
        early_trainjob(trainer={"image": "example.com/mine:2", "numNodes": 2}),
        early_runtime(step("trainer-node", "trainer"), step("launcher", "launcher"), **policy),
    )
    found = pods(made)
    assert {name: pod["containers"][0]["name"] for name, pod in found.items()} == {"node": "node", "launcher": "node"}
    assert found["launcher"]["containers"][0]["image"] == "example.com/mine:2"
    assert found["node"]["containers"][0]["image"] == "example.com/trainer:1"


def test_policies_name_the_new_jobs() -> None:
    old = early_runtime(*FULL)
    spec = old["spec"]["template"]["spec"]
    spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["trainer-node"]}
    spec["failurePolicy"] = {"rules": [{"name": "x", "action": "FailJobSet", "targetReplicatedJobs": ["Initializer"]}]}
    spec["coordinator"] = {"replicatedJob": "trainer-node"}
    migrated = migrate(old)
    spec = migrated.objects[0]["spec"]["template"]["spec"]
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["node"]
    assert spec["failurePolicy"]["rules"][0]["targetReplicatedJobs"] == ["dataset-initializer", "model-initializer"]
    assert spec["coordinator"]["replicatedJob"] == "node"
    assert "Initializer became dataset-initializer and model-initializer" in [note.text for note in migrated.notes]


def test_overrides_follow_their_jobs_and_containers() -> None:
    made = jobset_of(
        early_trainjob(
            trainer={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
            podSpecOverrides=[
                {
                    "targetJobs": [{"name": "trainer-node"}],
                    "nodeSelector": {"gpu": "a"},
                    "containers": [{"name": "trainer", "env": [{"name": "B", "value": "2"}]}],
                },
                {
                    "targetJobs": [{"name": "Initializer"}],
                    "serviceAccountName": "reader",
                    "containers": [{"name": "model-initializer", "env": [{"name": "C", "value": "3"}]}],
                },
            ],
        ),
        early_runtime(*FULL),
    )
    found = pods(made)
    assert found["node"]["nodeSelector"] == {"gpu": "a"}
    assert (variables(found["node"])["A"], variables(found["node"])["B"]) == ("1", "2")
    assert variables(found["model-initializer"]) == {"C": "3"}
    assert found["dataset-initializer"]["serviceAccountName"] == "reader"
    assert len(found["dataset-initializer"]["containers"]) == 1


def test_texts_with_old_host_names_and_runtimes_without_a_trainer_are_told() -> None:
    old = early_runtime(step("trainer-node", "trainer"))
    pod = old["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["args"] = ["--master", "x-trainer-node-0-0.x"]
    assert any("host names now contain node-" in note.text for note in migrate(old).notes)
    assert any("has no effect" in note.text for note in migrate(early_runtime(step("other", "other"))).notes)


CONTAINERS = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers"


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (early_runtime(step("initializer", "dataset-initializer", "model-initializer", "more")), CONTAINERS),
        (early_runtime(step("initializer", "other")), CONTAINERS),
        (early_runtime(step("trainer-node", "other")), CONTAINERS),
        (early_runtime(step("trainer-node")), CONTAINERS),
        (early_runtime(step("trainer-node", "trainer"), step("node", "trainer")), "spec.template.spec.replicatedJobs"),
        (
            early_runtime(step("trainer-node", "trainer"), mpi={"mpiImplementation": "Intel"}),
            "spec.mlPolicy.mpi.mpiImplementation",
        ),
        (early_runtime(step("trainer-node", "trainer", replicas=2)), "spec.template.spec.replicatedJobs[0].replicas"),
        (early_runtime(step("trainer-node", "trainer"), torch=[]), "spec.mlPolicy.torch"),
        (early_runtime({"name": "trainer-node", "template": []}), "spec.template.spec.replicatedJobs[0].template"),
        ({**early_runtime(), "spec": []}, "spec"),
        ({**early_trainjob(), "spec": []}, "spec"),
        ({**early_trainjob(), "spec": {}}, "spec.runtimeRef"),
        (early_trainjob(runtimeRef=["early"]), "spec.runtimeRef"),
        (early_trainjob(trainingRuntimeRef={"name": "early"}), "spec.trainingRuntimeRef"),
        (early_trainjob(trainer=["python"]), "spec.trainer"),
        (early_trainjob(trainer={"command": "python"}), "spec.trainer.command"),
        (early_trainjob(trainer={"resources": {}}), "spec.trainer.resources"),
        (early_trainjob(trainer={"numNodes": 1}, numNodes=2), "spec.numNodes"),
        (early_trainjob(datasetConfig=[{"storageUri": "hf://a/b"}]), "spec.datasetConfig"),
        (early_trainjob(datasetConfig={"storageUri": ["hf://a/b"]}), "spec.datasetConfig.storageUri"),
        (early_trainjob(datasetConfig={"storageUri": "no uri"}), "spec.initializer.dataset.storageUri"),
        (early_trainjob(datasetConfig={"env": {}}), "spec.initializer.dataset.env"),
        (
            early_trainjob(datasetConfig={"storageUri": "hf://a/b"}, initializer={"dataset": {"storageUri": "hf://c/d"}}),
            "spec.datasetConfig",
        ),
        (early_trainjob(modelConfig={"input": "hf://a/b"}), "spec.modelConfig.input"),
        (early_trainjob(labels=["a"]), "spec.labels"),
        (early_trainjob(podSpecOverrides={"targetJobs": []}), "spec.podSpecOverrides"),
        (early_trainjob(podSpecOverrides=[{"targetJobs": ["node"]}]), "spec.podSpecOverrides[0].targetJobs[0]"),
        (
            early_trainjob(
                podSpecOverrides=[{"targetJobs": [{"name": "node"}], "containers": [{"name": "a", "command": ["b"]}]}]
            ),
            "spec.podSpecOverrides[0].containers[0].command",
        ),
        (
            early_trainjob(
                podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": {"containers": [{"name": "a", "args": []}]}}]
            ),
            "spec.podTemplateOverrides[0].spec.containers[0].args",
        ),
        (early_trainjob(managedBy="someone"), "spec.managedBy"),
        ({**early_trainjob(), "metadata": {"name": "No_Name"}}, "metadata.name"),
        ({**early_trainjob(), "metadata": ["job"]}, "metadata"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unsupported_legacy_fields_are_refused(obj: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as raised:
        migrate(obj)
    assert any(field in (problem.field, problem.where) for problem in raised.value.problems), raised.value.problems


def test_a_trainjob_without_a_name_may_get_one_later() -> None:
    assert migrate({**early_trainjob(), "metadata": {}}).objects[0]["spec"]["runtimeRef"]["name"] == "early"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.text(max_size=4) | st.sampled_from(["node", "trainer-node", "trainer"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "spec", "template", "containers", "torch", "targetJobs", "storageUri", "input", "secretRef", "metadata"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
TRAINJOB_FIELDS = (
    "runtimeRef",
    "trainingRuntimeRef",
    "trainer",
    "datasetConfig",
    "modelConfig",
    "initializer",
    "podSpecOverrides",
    "podTemplateOverrides",
    "labels",
    "annotations",
    "numNodes",
    "managedBy",
    "runtimePatches",
)


@pytest.mark.medium
@given(
    version=st.sampled_from(["kubeflow.org/v2alpha1", "trainer.kubeflow.org/v1alpha1"]),
    fields=st.dictionaries(st.sampled_from(TRAINJOB_FIELDS), JSON, min_size=1, max_size=3),
)
def test_property_a_trainjob_is_admitted_or_refused(version: str, fields: dict[str, Any]) -> None:
    obj = {**early_trainjob(**fields), "apiVersion": version}
    was_legacy = is_legacy(obj)
    try:
        made = migrate(obj).objects[0]
    except (Invalid, BadRequest):
        return
    if was_legacy:
        admit(made)


@given(
    version=st.sampled_from(["kubeflow.org/v2alpha1", "trainer.kubeflow.org/v1alpha1"]),
    place=st.sampled_from(["spec", "mlPolicy", "template", "template.spec", "replicatedJobs", "job", "job.template", "pod"]),
    value=JSON,
)
def test_property_a_runtime_is_admitted_or_refused(version: str, place: str, value: Any) -> None:
    obj = {**copy.deepcopy(early_runtime(*FULL)), "apiVersion": version}
    spec = obj["spec"]
    job = spec["template"]["spec"]["replicatedJobs"][1]
    holders: dict[str, tuple[dict[str, Any], str]] = {
        "spec": (obj, "spec"),
        "mlPolicy": (spec, "mlPolicy"),
        "template": (spec, "template"),
        "template.spec": (spec["template"], "spec"),
        "replicatedJobs": (spec["template"]["spec"], "replicatedJobs"),
        "job": (job, "dependsOn"),
        "job.template": (job, "template"),
        "pod": (job["template"]["spec"]["template"], "spec"),
    }
    holder, key = holders[place]
    holder[key] = value
    was_legacy = is_legacy(obj)
    try:
        made = migrate(obj).objects[0]
    except (Invalid, BadRequest):
        return
    if was_legacy:
        admit(made)


def test_the_command_builds_a_trainjob_with_the_runtime_beside_it() -> None:
    together = yaml.safe_dump_all([early_runtime(*FULL), early_trainjob(trainer={"numNodes": 2})])
    done = CliRunner().invoke(app, ["migrate", "-f", "-", "-o", "json"], input=together)
    assert done.exit_code == 0, done.output
    assert [obj["kind"] for obj in json.loads(done.stdout)["objects"]] == ["ClusterTrainingRuntime", "TrainJob"]
    misfit = early_trainjob(podSpecOverrides=[{"targetJobs": [{"name": "elsewhere"}], "nodeSelector": {"a": "b"}}])
    done = CliRunner().invoke(app, ["migrate", "-f", "-"], input=yaml.safe_dump_all([early_runtime(*FULL), misfit]))
    assert done.exit_code == 2
    assert "elsewhere" in done.stderr
