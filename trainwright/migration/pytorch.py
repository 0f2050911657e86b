"""Migrates a PyTorchJob to nodes under Trainer's torch policy, which sets PET_*, with the old operator's other variables.

The operator set both in every pod, whatever its command is: a torchrun inside a script reads them too.
"""

from __future__ import annotations

from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.migration import placement as env
from trainwright.migration.new_objects import (
    Framework,
    JobSetPlan,
    note_differences,
    replicated_job,
    runtime_result,
    stock_result,
)
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, Placement, node_placement
from trainwright.migration.replica_job import ReplicaJob, Replicas, ReplicaType, container_of, parse, port_of

_TYPES = (ReplicaType("Master", "OnFailure", only_one=True), ReplicaType("Worker", "OnFailure"))
_CONTAINER, _PORT_NAME, _PORT = "pytorch", "pytorchjob-port", 23456
_RESERVED = ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
"""Variables that Trainer's torch policy sets, and refuses in a TrainJob."""
_TORCHTUNE = ["tune", "run"]
"""A command that Trainer rewrites if it is exactly this."""


def migrate_pytorch_job(obj: Obj) -> MigrationResult:
    """Migrate a PyTorchJob. Raises Invalid."""
    job = parse(obj, "pytorchReplicaSpecs", _TYPES, Notes())
    placement = node_placement(job.first_of("Master"), job.first_of("Worker"))
    note_differences(job, placement)
    rename_pods(job, placement)
    leader = placement.jobs[0].replicas
    processes = _processes(job, leader, is_split=placement.is_split)
    _note_elastic(job)

    def environment(place: Place) -> list[Obj]:
        variables = _environment(job, placement)
        return variables + (_torchrun_environment(job, placement) if placement.is_split else [])

    framework = Framework("torch", _CONTAINER, environment, reserved=() if placement.is_split else _RESERVED)
    numbers: Obj = {"numNodes": job.pods} | ({"numProcPerNode": processes} if processes else {})
    stock = stock_result(job, framework, placement, "torch-distributed", numbers)
    if stock is not None:
        _keep_torchtune_command(stock.objects[0]["spec"]["trainer"])
        return stock
    jobs = [replicated_job(job, framework, place, is_trainer=place.job == names.NODE) for place in placement.jobs]
    success = [made["name"] for made in jobs]
    if placement.is_split:  # the policy knows one replicated job only
        return runtime_result(job, framework, placement, jobs, JobSetPlan({"numNodes": 1}, success))
    return runtime_result(job, framework, placement, jobs, JobSetPlan({"numNodes": job.pods, "torch": {}}, success, numbers))


def _environment(job: ReplicaJob, placement: Placement) -> list[Obj]:
    """Return the variables that the operator set, other than those that Trainer's torch policy sets."""
    variables: list[Obj] = []
    master = job.first_of("Master")
    if master is not None:
        given = str(job.spec.get("nprocPerNode") or "")
        world = job.pods * (int(given) if given.isdecimal() else 1)
        variables += [
            env.value("MASTER_PORT", port_of(master, _CONTAINER, _PORT_NAME, _PORT)),
            env.value("MASTER_ADDR", placement.host(master, 0, env.JOBSET)),
            env.value("WORLD_SIZE", world),
            env.rank("RANK", is_split=placement.is_split),
        ]
    variables += _elastic_environment(job, placement)
    if any(env.JOBSET in str(variable.get("value")) for variable in variables):
        variables.insert(0, env.JOBSET_NAME)
    return [*variables, env.value("PYTHONUNBUFFERED", 1)]


def _torchrun_environment(job: ReplicaJob, placement: Placement) -> list[Obj]:
    """Return the variables of torchrun that the operator set, and Trainer sets only in nodes of one replicated job."""
    master = placement.jobs[0].replicas
    given = job.spec.get("nprocPerNode") or (job.spec.get("elasticPolicy") or {}).get("nProcPerNode") or "auto"
    return [
        env.value("PET_NNODES", job.pods),
        env.value("PET_NPROC_PER_NODE", given),
        env.rank("PET_NODE_RANK", is_split=True),
        env.value("PET_MASTER_ADDR", placement.host(master, 0, env.JOBSET)),
        env.value("PET_MASTER_PORT", port_of(master, _CONTAINER, _PORT_NAME, _PORT)),
    ]


def _elastic_environment(job: ReplicaJob, placement: Placement) -> list[Obj]:
    """Return the rendezvous of an elastic job, without which each node that starts `torchrun --nnodes=1:2` would train alone."""
    policy = job.spec.get("elasticPolicy")
    workers = job.first_of("Worker")
    if policy is None or workers is None:
        return []
    host = policy.get("rdzvHost") or placement.host(workers, 0, env.JOBSET)
    port = policy.get("rdzvPort") or port_of(workers, _CONTAINER, _PORT_NAME, _PORT)
    variables = [
        env.value("PET_RDZV_ENDPOINT", f"{host}:{port}"),
        env.value("PET_RDZV_BACKEND", policy.get("rdzvBackend") or "c10d"),
    ]
    if policy.get("maxRestarts") is not None:
        variables.append(env.value("PET_MAX_RESTARTS", policy["maxRestarts"]))
    if policy.get("rdzvId"):
        variables.append(env.value("PET_RDZV_ID", policy["rdzvId"]))
    if policy.get("rdzvConf"):
        pairs = (f"{pair.get('key', '')}={pair.get('value', '')}" for pair in policy["rdzvConf"])
        variables.append(env.value("PET_RDZV_CONF", ",".join(pairs)))
    return variables


def _processes(job: ReplicaJob, leader: Replicas, *, is_split: bool) -> int | None:
    """Return the processes per node; None leaves it to the torch policy, which counts GPUs, else CPUs."""
    given: Any = job.spec.get("nprocPerNode")
    path = "spec.nprocPerNode"
    if given is None and (job.spec.get("elasticPolicy") or {}).get("nProcPerNode") is not None:
        given, path = job.spec["elasticPolicy"]["nProcPerNode"], "spec.elasticPolicy.nProcPerNode"
    if str(given).isdecimal() and int(given) > 0:
        return int(given)
    container = container_of(leader.template, _CONTAINER)
    if is_split:
        return None  # PET_NPROC_PER_NODE is kept as it is
    if given not in (None, "auto", "gpu" if _has_gpus(container) else None):
        job.notes.add(path, f"{given} is not kept: by default there is one process per GPU of the node, else per CPU")
    elif not _has_gpus(container):
        text = (
            f"{given or 'auto'} let torchrun start one process per GPU that it saw, else per CPU of the host. Without GPUs among "
            "the resources Trainer starts one per CPU that they request, else one: set spec.trainer.numProcPerNode"
        )
        job.notes.add(path, text)
    return None


def _has_gpus(container: Obj) -> bool:
    """Whether the torch policy leaves the number of processes to torchrun."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return any("gpu" in name.lower() and str(amount) != "0" for name, amount in amounts.items())


def _keep_torchtune_command(trainer: Obj) -> None:
    """Move an argument to the command, since Trainer chooses the recipe if that is `tune run` alone."""
    if trainer.get("command") == _TORCHTUNE and trainer.get("args"):
        trainer["command"], trainer["args"] = [*_TORCHTUNE, trainer["args"][0]], trainer["args"][1:]


def _note_elastic(job: ReplicaJob) -> None:
    texts = {
        "maxRestarts": "is now the variable PET_MAX_RESTARTS",
        "minReplicas": "is not kept: TrainJobs do not scale; numNodes is the number of replicas",
        "maxReplicas": "is not kept: TrainJobs do not scale; numNodes is the number of replicas",
        "metrics": "is not kept: TrainJobs do not scale; numNodes is the number of replicas",
        "standalone": "is not kept: torchrun does not accept the empty PET_STANDALONE that the operator set",
    }
    for field in job.spec.get("elasticPolicy") or {}:
        if field in texts:
            job.notes.add(f"spec.elasticPolicy.{field}", texts[field])
