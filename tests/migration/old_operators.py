"""What the old operators made of a job: its pods with environment, restart policy and command, and the hostfile.

Written from the operators' code, not from the migration. Sources, in kubeflow/trainer at tag v1.9.3 unless noted:

* Replicas, restart policies, types in any case: pkg/apis/kubeflow.org/v1/*_defaults.go, defaulting_utils.go, *_types.go.
* Names of pods are JOB-TYPE-INDEX; the operator's variables come last, so they win: pkg/controller.v1/common/pod.go.
* ExitCode makes pods with the policy Never: pkg/core/pod.go.
* PyTorchJob: pkg/controller.v1/pytorch/envvar.go, master.go, elastic.go.
* JAXJob: pkg/controller.v1/jax/envvar.go.
* TFJob, TF_CONFIG only in the container `tensorflow` of a distributed job: pkg/controller.v1/tensorflow/tensorflow.go and
  tfjob_controller.go.
* XGBoostJob: pkg/controller.v1/xgboost/xgboost.go.
* PaddleJob, whose rank 0 has its own address: pkg/controller.v1/paddlepaddle/envvar.go.
* MPIJob v1, hostfile and commands: pkg/controller.v1/mpi/mpijob_controller.go, mpijob.go.
* MPIJob v2beta1: kubeflow/mpi-operator v0.8, pkg/controller/mpi_job_controller.go and pkg/apis/kubeflow/v2beta1/default.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

IP = "IP OF "
"""Before the name of a pod: the address of that pod."""


@dataclass(frozen=True)
class Kind:
    """One kind of old job, with its operator's defaults."""

    field: str
    types: tuple[str, ...]
    """In the order of ranks."""
    container: str
    port_name: str
    port: int
    restart: dict[str, str] = field(default_factory=dict)
    """By type; Never for others."""
    replicas: dict[str, int] = field(default_factory=dict)
    """By type; 1 for others."""


KINDS = {
    "PyTorchJob": Kind(
        "pytorchReplicaSpecs",
        ("Master", "Worker"),
        "pytorch",
        "pytorchjob-port",
        23456,
        {"Master": "OnFailure", "Worker": "OnFailure"},
    ),
    "JAXJob": Kind("jaxReplicaSpecs", ("Worker",), "jax", "jaxjob-port", 6666),
    "TFJob": Kind("tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"), "tensorflow", "tfjob-port", 2222),
    "XGBoostJob": Kind("xgbReplicaSpecs", ("Master", "Worker"), "xgboost", "xgboostjob-port", 9999),
    "PaddleJob": Kind(
        "paddleReplicaSpecs", ("Master", "Worker"), "paddle", "master", 36543, {"Master": "OnFailure", "Worker": "OnFailure"}
    ),
    "MPIJob": Kind("mpiReplicaSpecs", ("Worker", "Launcher"), "mpi", "", 0, replicas={"Worker": 0}),
}
FAMILIES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "TF_CONFIG",
    "WORKER_ADDRS",
    "WORKER_PORT",
    "COORDINATOR_ADDRESS",
    "COORDINATOR_PORT",
    "NUM_PROCESSES",
    "PROCESS_ID",
    "PADDLE_MASTER",
    "PADDLE_NNODES",
    "PADDLE_JOB_ID",
    "PADDLE_SERVER_NUM",
    "PADDLE_TRAINER_NUM",
    "PADDLE_TRAINER_ID",
    "PADDLE_TRAINERS_NUM",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_MAX_RESTARTS",
    "K_MPI_JOB_ROLE",
)
"""Variables by which programs find their peers: no pod may have one that the operator did not set."""


@dataclass
class Pod:
    """A pod of the old job."""

    name: str
    type: str
    restart: str
    template: dict[str, Any]
    environment: dict[str, str]
    """The operator's variables of the training container; names of pods are host names."""
    command: list[str] | None = None
    """If the operator set it."""
    args: list[str] | None = None


def replicas_of(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The replica specs by type in its proper case, with defaults, in the order of ranks."""
    kind = KINDS[job["kind"]]
    given = {name.lower(): spec for name, spec in job["spec"][kind.field].items()}
    specs = {}
    for name in kind.types:
        if name.lower() in given:
            spec = given[name.lower()]
            policy = spec.get("restartPolicy") or _default_restart(job, name)
            specs[name] = {**spec, "restartPolicy": policy, "replicas": spec.get("replicas", kind.replicas.get(name, 1))}
    return specs


def _default_restart(job: dict[str, Any], name: str) -> str:
    if job["apiVersion"] == "kubeflow.org/v2beta1" and name == "Launcher":
        return "OnFailure"
    return KINDS[job["kind"]].restart.get(name, "Never")


def pods_of(job: dict[str, Any]) -> list[Pod]:
    """All pods that the operator created, in the order of ranks."""
    return [pod for name, spec in replicas_of(job).items() for pod in _pods(job, name, spec)]


def _pods(job: dict[str, Any], name: str, spec: dict[str, Any]) -> Iterator[Pod]:
    for number in range(spec["replicas"]):
        restart = {"ExitCode": "Never", "Always": "OnFailure"}.get(spec["restartPolicy"], spec["restartPolicy"])
        is_launcher = name == "Launcher"
        pod_name = _name(job, name, number) if not is_launcher else f"{job['metadata']['name']}-launcher"
        pod = Pod(pod_name, name, restart, spec["template"], ENVIRONMENTS[job["kind"]](job, name, number))
        container = spec["template"]["spec"]["containers"][0]
        if job["kind"] == "MPIJob" and not is_launcher:
            if job["apiVersion"] == "kubeflow.org/v2beta1" and not container.get("command") and not container.get("args"):
                pod.command, pod.args = ["/usr/sbin/sshd", "-De"], []
            elif job["apiVersion"] == "kubeflow.org/v1" and (container.get("command") or ["sleep"])[0] == "sleep":
                # `sleep 365d` by default: ranks came by kubectl exec, and come by ssh now
                pod.command, pod.args = ["/usr/sbin/sshd", "-De"], []
        yield pod


def _name(job: dict[str, Any], name: str, number: int) -> str:
    return f"{job['metadata']['name']}-{name.lower()}-{number}"


def _port(job: dict[str, Any], name: str) -> str:
    kind = KINDS[job["kind"]]
    for container in replicas_of(job)[name]["template"]["spec"]["containers"]:
        for port in container.get("ports") or []:
            if container["name"] == kind.container and port.get("name") == kind.port_name:
                return str(port["containerPort"])
    return str(kind.port)


def _total(job: dict[str, Any]) -> int:
    return sum(spec["replicas"] for spec in replicas_of(job).values())


def _rank(job: dict[str, Any], name: str, number: int) -> int:
    masters = replicas_of(job).get("Master", {}).get("replicas", 0)
    return number + (masters if name == "Worker" else 0)


def _pytorch(job: dict[str, Any], name: str, number: int) -> dict[str, str]:
    spec, processes = job["spec"], str(job["spec"].get("nprocPerNode") or "auto")
    made = {"PYTHONUNBUFFERED": "1"}
    if "Master" in replicas_of(job):
        rank = str(_rank(job, name, number))
        host, port = _name(job, "Master", 0), _port(job, "Master")
        world = _total(job) * (int(processes) if processes.isdecimal() else 1)
        made |= {"MASTER_ADDR": host, "MASTER_PORT": port, "WORLD_SIZE": str(world), "RANK": rank}
        made |= {"PET_MASTER_ADDR": host, "PET_MASTER_PORT": port, "PET_NODE_RANK": rank}
    elastic = spec.get("elasticPolicy")
    if elastic is None:
        return made | {"PET_NPROC_PER_NODE": processes, "PET_NNODES": str(_total(job))}
    host = elastic.get("rdzvHost") or _name(job, "Worker", 0)
    made["PET_RDZV_ENDPOINT"] = f"{host}:{elastic.get('rdzvPort') or _port(job, 'Worker')}"
    made["PET_RDZV_BACKEND"] = elastic.get("rdzvBackend") or "c10d"
    if "maxRestarts" in elastic:
        made["PET_MAX_RESTARTS"] = str(elastic["maxRestarts"])
    if "rdzvId" in elastic:
        made["PET_RDZV_ID"] = elastic["rdzvId"]
    if "rdzvConf" in elastic:
        made["PET_RDZV_CONF"] = ",".join(f"{pair['key']}={pair['value']}" for pair in elastic["rdzvConf"])
    made["PET_NPROC_PER_NODE"] = str(elastic.get("nProcPerNode") or processes)
    workers = str(replicas_of(job)["Worker"]["replicas"])
    made["PET_NNODES"] = f"{elastic.get('minReplicas', workers)}:{elastic.get('maxReplicas', workers)}"
    return made


def _jax(job: dict[str, Any], name: str, number: int) -> dict[str, str]:
    made = {"COORDINATOR_ADDRESS": _name(job, "Worker", 0), "COORDINATOR_PORT": _port(job, "Worker")}
    return made | {"NUM_PROCESSES": str(_total(job)), "PROCESS_ID": str(number), "PYTHONUNBUFFERED": "1"}


def _tensorflow(job: dict[str, Any], name: str, number: int) -> dict[str, str]:
    if _total(job) == 1:
        return {}
    cluster = {
        other.lower(): [f"{_name(job, other, index)}:{_port(job, other)}" for index in range(spec["replicas"])]
        for other, spec in replicas_of(job).items()
        if other != "Evaluator"
    }
    task = {"type": name.lower(), "index": number}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


def _xgboost(job: dict[str, Any], name: str, number: int) -> dict[str, str]:
    made = {"MASTER_ADDR": _name(job, "Master", 0), "MASTER_PORT": _port(job, "Master"), "WORLD_SIZE": str(_total(job))}
    made |= {"RANK": str(_rank(job, name, number)), "PYTHONUNBUFFERED": "1"}
    if _total(job) > 1:
        made["WORKER_PORT"] = _port(job, "Worker")
        made["WORKER_ADDRS"] = ",".join(_name(job, "Worker", index) for index in range(_total(job) - 1))
    return made


def _paddle(job: dict[str, Any], name: str, number: int) -> dict[str, str]:
    leader = "Master" if "Master" in replicas_of(job) else "Worker"
    is_first = name == leader and number == 0
    endpoint = f"{IP if is_first else ''}{_name(job, leader, 0)}:{_port(job, leader)}"
    made = {"PADDLE_JOB_ID": job["metadata"]["name"], "PADDLE_NNODES": str(_total(job)), "PADDLE_MASTER": endpoint}
    if leader == "Master":
        made["PADDLE_SERVER_NUM" if name == "Master" else "PADDLE_TRAINER_NUM"] = "1"
    return made | {"PYTHONUNBUFFERED": "1"}


def _mpi(job: dict[str, Any], name: str, number: int) -> dict[str, str]:
    is_v2 = job["apiVersion"] == "kubeflow.org/v2beta1"
    made = {"K_MPI_JOB_ROLE": name.lower()} if is_v2 else {}
    if name != "Launcher":
        return made
    made["OMPI_MCA_orte_default_hostfile"] = "/etc/mpi/hostfile"
    if is_v2:
        made |= {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10"}
        made["OMPI_MCA_orte_set_default_slots"] = str(job["spec"].get("slotsPerWorker", 1))
    return made if launcher_is_node(job) else made | {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


def launcher_is_node(job: dict[str, Any]) -> bool:
    """Whether the hostfile of an MPIJob has the launcher, as its first host."""
    if job["apiVersion"] == "kubeflow.org/v2beta1":
        return bool(job["spec"].get("runLauncherAsWorker"))
    containers = replicas_of(job)["Launcher"]["template"]["spec"]["containers"]
    return any("gpu" in name for one in containers for name in (one.get("resources") or {}).get("limits") or {})


def hostfile_of(job: dict[str, Any]) -> list[tuple[str, int]]:
    """The hosts of an MPIJob, by the names of pods, with their slots."""
    workers = [_name(job, "Worker", number) for number in range(replicas_of(job).get("Worker", {}).get("replicas", 0))]
    launcher = [f"{job['metadata']['name']}-launcher"] if launcher_is_node(job) else []
    return [(name, job["spec"].get("slotsPerWorker", 1)) for name in launcher + workers]


ENVIRONMENTS = {
    "PyTorchJob": _pytorch,
    "JAXJob": _jax,
    "TFJob": _tensorflow,
    "XGBoostJob": _xgboost,
    "PaddleJob": _paddle,
    "MPIJob": _mpi,
}
