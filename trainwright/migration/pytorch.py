"""Migrates a PyTorchJob to nodes of one replicated job. torchrun uses PET_*, other programs the old operator's variables."""

from __future__ import annotations

from typing import Any

from trainwright.api.objects import Obj
from trainwright.migration import replica_job
from trainwright.migration.notes import MigrationResult, Notes

_PORT = "23456"
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


def migrate_pytorch_job(obj: Obj) -> MigrationResult:
    """Migrate a PyTorchJob. Raises Invalid."""
    job = replica_job.parse(obj, "pytorchReplicaSpecs", ("Master", "Worker"), Notes())
    leader, workers = job.first_of("Master", "Worker"), job.first_of("Worker")
    assert leader is not None
    nodes = sum(replicas.count for replicas in job.replicas.values())
    container = leader.container("pytorch")
    if workers is not None and workers is not leader:
        replica_job.note_differences(job, leader, workers)
    processes = _processes(job.obj["spec"], job.notes)
    _elastic(job.obj["spec"].get("elasticPolicy"), job.notes)
    if not _uses_launcher(container):
        replica_job.add_env(container, _environment(nodes))
        if processes not in (None, 1):
            job.notes.add("spec.nprocPerNode", "is not kept: the program is not started by torchrun")
            processes = None
    trainer = replica_job.trainer_fields(job, leader, container)
    numbers: Obj = {"numNodes": nodes} | ({"numProcPerNode": processes} if processes else {})
    if trainer is not None:
        stock = {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
        return MigrationResult([replica_job.build_trainjob(job, stock, trainer | numbers)], job.notes.notes)
    node = replica_job.build_replicated_job(job, leader, "node", container=container, ancestor=True)
    runtime = replica_job.build_runtime(job, "torch", {"numNodes": nodes, "torch": {}}, [node], success=["node"])
    override = {"numProcPerNode": processes} if processes else None
    return MigrationResult(
        [runtime, replica_job.build_trainjob(job, replica_job.runtime_ref(runtime), override)], job.notes.notes
    )


def _environment(nodes: int) -> list[Obj]:
    """Return the variables that the old operator set in every pod, for programs that call init_process_group themselves."""
    return [
        replica_job.JOBSET_NAME,
        {"name": "MASTER_ADDR", "value": replica_job.host("node", 0)},
        {"name": "MASTER_PORT", "value": _PORT},
        {"name": "WORLD_SIZE", "value": str(nodes)},
        replica_job.index_env("RANK"),
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]


def _uses_launcher(container: Obj) -> bool:
    arguments = [str(argument) for argument in [*(container.get("command") or []), *(container.get("args") or [])]]
    return any(launcher in argument for argument in arguments for launcher in _LAUNCHERS)


def _processes(spec: Obj, notes: Notes) -> int | None:
    """Return the processes per node; None leaves it to the torch policy, which counts GPUs, else CPUs."""
    given: Any = spec.get("nprocPerNode")
    path = "spec.nprocPerNode"
    if given is None and (spec.get("elasticPolicy") or {}).get("nProcPerNode") is not None:
        given, path = spec["elasticPolicy"]["nProcPerNode"], "spec.elasticPolicy.nProcPerNode"
    if given is None:
        return None
    if str(given).isdecimal() and int(given) > 0:
        return int(given)
    notes.add(path, f"{given} is not kept: by default there is one process per GPU of the node, else per CPU")
    return None


def _elastic(policy: Obj | None, notes: Notes) -> None:
    for field in policy or {}:
        if field == "nProcPerNode":
            continue
        text = "is not kept: the number of nodes is fixed, and Trainer sets the rendezvous"
        if field == "maxRestarts":
            text = "is not kept: set the variable PET_MAX_RESTARTS for restarts by torchrun"
        elif field in ("minReplicas", "maxReplicas", "metrics"):
            text = "is not kept: TrainJobs do not scale; numNodes is the number of replicas"
        notes.add(f"spec.elasticPolicy.{field}", text)
