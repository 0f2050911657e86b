"""What a task of a pipeline is given comes to the pods of its TrainJob, and not what is meant for the step alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from factories import program_request

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.jobs import Identity, TrainRequest
from trainwright.jobs.manifest.trainjob_manifest import trainjob_manifest
from trainwright.jobs.request.task_config import Task, with_task
from trainwright.jobs.submit.resolve import resolve
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime

EMPTY: dict[str, Any] = dict.fromkeys(
    ("resources", "env", "volumes", "volume_mounts", "node_selector", "tolerations", "affinity"), None
)
SECRET = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}
TOLERATION = {"key": "gpu", "operator": "Exists"}
SHM = {"name": "shm", "emptyDir": {"medium": "Memory"}}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}


def merged(request: TrainRequest | None = None, **config: Any) -> TrainRequest:
    return with_task(request or program_request(), Task(SimpleNamespace(**{**EMPTY, **config})))


def node_pod(request: TrainRequest) -> dict[str, Any]:
    """The admitted pod spec of the training step."""
    definition = bundled_runtime(request.runtime) or {}
    trainjob = trainjob_manifest(resolve(request, definition), Identity("kfp", "run", "train"), "default")
    admit(trainjob, context=AdmissionContext(strictness="Strict"))
    jobset = materialize(trainjob, definition)[-1]
    admit(jobset, context=AdmissionContext(strictness="Strict"))
    jobs = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}
    pod: dict[str, Any] = jobs["node"]
    return pod


def mounts_of(pod: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}


def test_all_six_fields_come_to_the_nodes() -> None:
    request = merged(
        resources={"limits": {"nvidia.com/gpu": "2", "cpu": ""}, "requests": {"cpu": "4"}},
        env=[SECRET, {"name": "A", "value": "1"}, {"name": "KFP_POD_NAME", "value": "x"}],
        volumes=[SHM, DATA],
        volume_mounts=[{"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": "/data", "readOnly": True}],
        node_selector={"pool": "gpu"},
        tolerations=[TOLERATION],
        affinity=AFFINITY,
    )
    pod = node_pod(request)
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "4"}}
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["WANDB_API_KEY"] == SECRET
    assert env["A"]["value"] == "1"
    assert not any(name.startswith("KFP_") for name in env)
    assert mounts_of(pod).items() >= {"/dev/shm": "shm", "/data": "data"}.items()
    assert {volume["name"] for volume in pod["volumes"]} >= {"shm", "data"}
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert TOLERATION in pod["tolerations"]
    assert pod["affinity"] == AFFINITY


def test_settings_take_precedence_entry_by_entry() -> None:
    request = merged(
        program_request(
            resources_per_node='{"nvidia.com/gpu": 1}',
            env={"A": "own"},
            node_selector={"pool": "own"},
            tolerations=[TOLERATION],
            volumes=[{"name": "shm", "emptyDir": {}}],
        ),
        resources={"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}},
        env=[{"name": "A", "value": "task"}, {"name": "B", "value": "task"}],
        node_selector={"pool": "task", "zone": "a"},
        tolerations=[TOLERATION, {"key": "other"}],
        volumes=[SHM, DATA],
    )
    assert request.resources_per_node["limits"] == {"nvidia.com/gpu": "1", "memory": "1Gi"}
    assert request.env == {"A": "own", "B": "task"}
    assert request.placement.node_selector == {"pool": "own", "zone": "a"}
    assert request.placement.tolerations == [TOLERATION, {"key": "other"}]
    assert request.placement.volumes == [{"name": "shm", "emptyDir": {}}, DATA]
    assert request.runtime == "torch-distributed"


def test_credentials_of_the_step_are_not_those_of_the_job() -> None:
    store = {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "store", "key": "AWS_SECRET_ACCESS_KEY"}}}
    assert merged(program_request(store_secret="store"), env=[store, SECRET]).env == {
        "WANDB_API_KEY": {"valueFrom": SECRET["valueFrom"]}
    }


def test_the_workspace_of_the_step_and_the_trackers_that_it_feeds_stay_with_it() -> None:
    volumes = [{"name": "w", "persistentVolumeClaim": {"claimName": "work"}}, DATA]
    mounts = [{"name": "w", "mountPath": "/workspace"}, {"name": "data", "mountPath": "/data"}]
    given = {"volumes": volumes, "volume_mounts": mounts, "env": [SECRET, {"name": "OTHER", "value": "1"}]}
    request, config = program_request(workspace="pvc://work/folder"), SimpleNamespace(**{**EMPTY, **given})
    found = with_task(request, Task(config, feeds_trackers=True, mounts_workspace=True))
    assert (found.placement.volumes, found.placement.volume_mounts, found.env) == ([DATA], mounts[1:], {"OTHER": "1"})
    found = with_task(request, Task(config))
    assert (found.placement.volumes, found.placement.volume_mounts) == (volumes, mounts)
    assert found.env.keys() == {"OTHER", "WANDB_API_KEY"}


def test_a_second_mount_of_a_volume_and_the_workspaces_own_claim() -> None:
    pod = node_pod(
        program_request(
            workspace="pvc://data/team",
            volumes=[DATA, SHM],
            volume_mounts=[
                {"name": "data", "mountPath": "/data", "subPath": "raw"},
                {"name": "data", "mountPath": "/more"},
                {"name": "shm", "mountPath": "/dev/shm"},
            ],
        )
    )
    assert mounts_of(pod).items() >= {"/data": "initializer", "/more": "initializer", "/dev/shm": "shm"}.items()
    claims = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in pod["volumes"]]
    assert claims.count("data") == 1, "a pod with two volumes of one claim never starts on Kubernetes 1.34"
