"""Pods of migrated jobs are those that the old operator created: number, environment, restart policy, slots, command by type."""

from __future__ import annotations

import copy
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from migration.old_operators import FAMILIES, IP, KINDS, Pod, hostfile_of, pods_of, replicas_of
from support.shared_folder import shared_folder

from trainwright.api.admission.admit import admit
from trainwright.materialize import materialize
from trainwright.migration import MigrationResult, migrate_all
from trainwright.runtimes import bundled_runtime

TRAINER_SETS = {
    "PET_MASTER_PORT": "Trainer's port is fixed, and the same in all pods",
    "PET_NNODES": "the range of an elastic job became its number of replicas, with a note",
    "PET_NPROC_PER_NODE": "Trainer derives `auto` from the resources, with a note",
}
"""Variables whose values differ from the operator's, and why that is the same training."""


@dataclass
class NewPod:
    """A pod of the migrated job, as the kubelet starts it."""

    host: str
    job: str
    spec: dict[str, Any]
    container: dict[str, Any]
    environment: dict[str, str]


def objects_of(migrated: MigrationResult) -> list[dict[str, Any]]:
    """What Trainer builds of the migrated objects; fails where they are not admitted."""
    *runtimes, trainjob = [admit(obj).object for obj in migrated.objects]
    runtime = runtimes[0] if runtimes else bundled_runtime(trainjob["spec"]["runtimeRef"]["name"])
    assert runtime is not None
    assert runtime["metadata"]["name"] == trainjob["spec"]["runtimeRef"]["name"]
    return materialize(trainjob, runtime)


def started(migrated: MigrationResult) -> list[NewPod]:
    """All pods of the migrated job, by replicated job, Job and completion index."""
    jobset = admit(next(obj for obj in objects_of(migrated) if obj["kind"] == "JobSet")).object
    pods = []
    for replicated in jobset["spec"]["replicatedJobs"]:
        for number, index in itertools.product(
            range(replicated.get("replicas", 1)), range(replicated["template"]["spec"].get("completions", 1))
        ):
            pods.append(_started(jobset, replicated, number, index))
    return pods


def _started(jobset: dict[str, Any], replicated: dict[str, Any], number: int, index: int) -> NewPod:
    name = jobset["metadata"]["name"]
    template = replicated["template"]["spec"]["template"]
    before = list(itertools.takewhile(lambda other: other is not replicated, jobset["spec"]["replicatedJobs"]))
    labels = {
        **(template.get("metadata", {}).get("labels") or {}),
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/job-index": str(number),
        "jobset.sigs.k8s.io/job-global-index": str(sum(other.get("replicas", 1) for other in before) + number),
    }
    host = f"{name}-{replicated['name']}-{number}-{index}.{name}"
    fields = {f"metadata.labels['{key}']": text for key, text in labels.items()}
    fields |= {"metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index), "status.podIP": f"{IP}{host}"}
    containers = template["spec"]["containers"]
    main = next((one for one in containers if one["name"] == "node"), None)
    if main is None:  # a follower's keeps its name
        known = {kind.container for kind in KINDS.values()}
        main = next((one for one in containers if one["name"] in known), containers[0])
    environment: dict[str, str] = {}
    for variable in main.get("env") or []:
        source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        text = fields[source] if source else variable.get("value", "")
        environment[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda one: environment.get(one[1], one[0]), text)
    return NewPod(host, replicated["name"], template["spec"], main, environment)


def check(job: dict[str, Any]) -> MigrationResult:
    """Assert that the pods of a migrated job are the old ones."""
    before = copy.deepcopy(job)
    (migrated,) = migrate_all([job])
    assert job == before
    old, new = pods_of(job), started(migrated)
    if job["kind"] == "MPIJob":
        new.sort(key=lambda pod: pod.job == "launcher")
    assert len(new) == len(old)
    hosts = {one.name: other.host for one, other in zip(old, new, strict=True)}
    for one, other in zip(old, new, strict=True):
        _check_pod(job, migrated, one, other, hosts)
    if job["kind"] == "MPIJob":
        config = next(obj for obj in objects_of(migrated) if obj["kind"] == "ConfigMap")
        expected = [f"{hosts[name]} slots={slots}" for name, slots in hostfile_of(job)]
        assert sorted(config["data"]["hostfile"].splitlines()) == sorted(expected)
        if config["data"]["hostfile"].splitlines() != expected:
            assert any("first host of the hostfile" in note.text for note in migrated.notes)
    return migrated


def _check_pod(job: dict[str, Any], migrated: MigrationResult, old: Pod, new: NewPod, hosts: dict[str, str]) -> None:
    def renamed(text: str) -> str:
        return re.sub(r"(?<![\w.-])[\w-]+(?![\w.-])", lambda one: hosts.get(one[0], one[0]), text)

    for name, value in old.environment.items():
        expected, found = renamed(value), new.environment.get(name)
        if name == "TF_CONFIG":
            assert json.loads(str(found)) == json.loads(expected)
        elif found != expected:
            assert name in TRAINER_SETS, f"{old.name}: {name} was {expected!r} and is {found!r}"
            _check_difference(job, migrated, name, str(found))
    assert new.spec["restartPolicy"] == old.restart
    given = next(
        (one for one in old.template["spec"]["containers"] if one["name"] == KINDS[job["kind"]].container),
        old.template["spec"]["containers"][0],
    )
    own = {variable["name"]: variable["value"] for variable in given.get("env") or [] if "value" in variable}
    assert set(new.environment) & set(FAMILIES) <= set(old.environment) | set(own)
    assert {name: new.environment[name] for name in own if name not in old.environment} == {
        name: renamed(value) for name, value in own.items() if name not in old.environment
    }
    command = given.get("command") if old.command is None else old.command
    args = given.get("args") if old.args is None else old.args
    assert new.container.get("command") == ([renamed(text) for text in command] if command else None)
    assert (new.container.get("args") or []) == [renamed(text) for text in args or []]
    assert new.container["image"] == given["image"]
    assert _as_texts(new.container.get("resources")) == _as_texts(given.get("resources"))


def _as_texts(resources: dict[str, Any] | None) -> dict[str, Any]:
    """Resources with quantities as texts."""
    return {group: {key: str(value) for key, value in amounts.items()} for group, amounts in (resources or {}).items()}


def _check_difference(job: dict[str, Any], migrated: MigrationResult, name: str, found: str) -> None:
    spec = job["spec"]
    if name == "PET_NNODES":
        assert "elasticPolicy" in spec
        assert found == str(len(pods_of(job)))
    if name == "PET_NPROC_PER_NODE":
        assert any(note.path.endswith("rocPerNode") for note in migrated.notes)


LAUNCHED = ["torchrun", "train.py", "--deepspeed", "ds.json"]
PLAIN = ["python", "train.py"]
NEEDS_RUNTIME: dict[str, dict[str, Any]] = {
    "stock": {},
    "volumes": {"volumes": [{"name": "scratch", "emptyDir": {}}]},
    "sidecar": {"sidecars": [{"name": "logs", "image": "example.com/logs:1"}]},
    "labels": {"labels": {"team": "a"}},
}
"""What of a pod template a bundled runtime cannot express."""
RUN_POLICIES: dict[str, Any] = {"ttl": {"ttlSecondsAfterFinished": 60}, "backoff": {"backoffLimit": 3}}
COUNTS = {
    "PyTorchJob": [{"Master": 1, "Worker": 2}, {"Worker": 2}, {"Master": 1}],
    "JAXJob": [{"Worker": 3}],
    "TFJob": [{"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}, {"Worker": 2}, {"Worker": 1}, {"Chief": 1, "Worker": 0}],
    "XGBoostJob": [{"Master": 1, "Worker": 2}, {"Master": 1}],
    "PaddleJob": [{"Worker": 3}, {"Master": 2, "Worker": 2}, {"Worker": 1}],
    "MPIJob": [{"Launcher": 1, "Worker": 3}, {"Launcher": 1}],
}


def old_job(kind: str, counts: dict[str, int], version: str = "kubeflow.org/v1", **container: Any) -> dict[str, Any]:
    """An old job of plain containers."""
    one = {"name": KINDS[kind].container, "image": "example.com/train:1", **container}
    specs = {
        name: {"replicas": count, "template": {"spec": {"containers": [copy.deepcopy(one)]}}} for name, count in counts.items()
    }
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "old", "namespace": "team"},
        "spec": {KINDS[kind].field: specs},
    }


def add(template: dict[str, Any], *, volumes: Any = None, sidecars: Any = (), labels: Any = None) -> None:
    template["spec"] |= {"volumes": volumes} if volumes else {}
    template["spec"]["containers"] += sidecars
    template |= {"metadata": {"labels": labels}} if labels else {}


@pytest.mark.medium
@pytest.mark.parametrize("command", [LAUNCHED, PLAIN], ids=["launcher", "plain"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_pods_of_every_kind_are_those_of_its_operator(kind: str, command: list[str]) -> None:
    policies: list[str | None] = [None, "OnFailure", "Never", "Always", "ExitCode"]
    versions = ["kubeflow.org/v1", "kubeflow.org/v2beta1"] if kind == "MPIJob" else ["kubeflow.org/v1"]
    for version, counts, need in itertools.product(versions, COUNTS[kind], [*NEEDS_RUNTIME, *RUN_POLICIES]):
        for policy in policies if need in ("stock", "volumes") else [None]:
            job = old_job(kind, counts, version, command=command)
            for spec in job["spec"][KINDS[kind].field].values():
                spec |= {"restartPolicy": policy} if policy else {}
                add(spec["template"], **copy.deepcopy(NEEDS_RUNTIME.get(need, {})))
            job["spec"]["runPolicy"] = RUN_POLICIES.get(need, {})
            check(job)


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob", "PaddleJob", "TFJob"])
def test_replica_types_keep_their_own_templates(kind: str) -> None:
    job = old_job(kind, COUNTS[kind][0], command=PLAIN)
    for number, (name, spec) in enumerate(job["spec"][KINDS[kind].field].items()):
        (container,) = spec["template"]["spec"]["containers"]
        container |= {"args": [f"--role={name}"], "ports": [{"name": KINDS[kind].port_name, "containerPort": 4000 + number}]}
        spec["restartPolicy"] = ["Never", "OnFailure"][number % 2]
    migrated = check(job)
    if kind in ("PyTorchJob", "XGBoostJob"):
        assert any("differs from Master, so" in note.text for note in migrated.notes)


def test_an_elastic_job_keeps_its_rendezvous_and_leftover_variables_do_not_win() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 9, "rdzvId": "x", "rdzvConf": [{"key": "a", "value": "1"}]}
    command = ["torchrun", "--nnodes=1:2", "--rdzv_backend=c10d", "train.py"]
    job = old_job("PyTorchJob", {"Worker": 2}, command=command, env=[{"name": "PET_RDZV_ENDPOINT", "value": "leftover:1"}])
    job["spec"]["elasticPolicy"] = policy
    notes = {note.path: note.text for note in check(job).notes}
    assert "operator set it too" in notes["spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[0]"]
    assert "PET_MAX_RESTARTS" in notes["spec.elasticPolicy.maxRestarts"]
    job = old_job("PyTorchJob", {"Master": 1, "Worker": 1}, command=PLAIN, env=[{"name": "WORLD_SIZE", "value": "1"}])
    job["spec"]["nprocPerNode"] = "2"
    check(job)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"MPIJob"}))
def test_replica_types_are_taken_in_any_case(kind: str) -> None:
    job = old_job(kind, COUNTS[kind][0], command=PLAIN)
    specs = job["spec"][KINDS[kind].field]
    job["spec"][KINDS[kind].field] = {name.upper() if name == "Worker" else name.lower(): spec for name, spec in specs.items()}
    check(job)


@pytest.mark.parametrize(
    ("version", "more", "launcher"),
    [
        ("v2beta1", {"slotsPerWorker": 1}, {}),
        ("v2beta1", {"slotsPerWorker": 8, "runLauncherAsWorker": True}, {}),
        ("v2beta1", {"runLauncherAsWorker": True, "launcherCreationPolicy": "WaitForWorkersReady"}, {}),
        ("v1", {"slotsPerWorker": 2}, {}),
        ("v1", {"slotsPerWorker": 2}, {"resources": {"limits": {"nvidia.com/gpu": 8}}}),
    ],
)
def test_mpi_hosts_and_slots_are_those_of_the_operator(version: str, more: dict[str, Any], launcher: dict[str, Any]) -> None:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    job = old_job("MPIJob", {"Launcher": 1, "Worker": 3}, f"kubeflow.org/{version}", **gpus)
    specs = job["spec"]["mpiReplicaSpecs"]
    specs["Launcher"]["template"]["spec"]["containers"] = [
        {"name": "start", "image": "example.com/l:1", "command": ["mpirun"], **launcher}
    ]
    job["spec"] |= more
    check(job)
    del specs["Worker"]["template"]["spec"]["containers"][0]["resources"]
    specs["Worker"]["template"]["spec"]["containers"][0]["args"] = ["serve"]
    check(job)


def documents(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    files = sorted(folder.rglob("*.yaml"))
    loaded = [(file.relative_to(folder).as_posix(), one) for file in files for one in yaml.safe_load_all(file.read_text("utf-8"))]
    return [(file, one) for file, one in loaded if one["kind"] in KINDS]


@pytest.mark.parametrize(("folder", "count"), [("upstream/training-operator-1.9/examples", 22), ("cases/field", 6)])
def test_pods_of_all_examples_are_those_of_their_operators(folder: str, count: int) -> None:
    jobs = documents(shared_folder(folder))
    assert len(jobs) >= count
    for file, job in jobs:
        try:
            check(job)
        except AssertionError as error:
            raise AssertionError(f"{file}: {error}") from error


def test_the_table_of_facts_covers_every_type() -> None:
    assert {kind: tuple(replicas_of(old_job(kind, dict.fromkeys(facts.types, 1)))) for kind, facts in KINDS.items()} == {
        kind: facts.types for kind, facts in KINDS.items()
    }
