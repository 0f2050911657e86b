"""PyTorchJob: nodes of one replicated job; torchrun finds its peers by PET_*, other programs by the old variables."""

from __future__ import annotations

from typing import Any

from trainwright.api.objects import Obj
from trainwright.migration import replica_job as old
from trainwright.migration.notes import Migrated, Notes

_PORT = "23456"
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


def migrate_pytorch_job(obj: Obj) -> Migrated:
    """Raises Invalid."""
    job = old.read(obj, "pytorchReplicaSpecs", ("Master", "Worker"), Notes())
    leader, workers = job.at("Master", "Worker"), job.at("Worker")
    assert leader is not None
    nodes = sum(replicas.count for replicas in job.replicas.values())
    container = leader.container("pytorch")
    if workers is not None and workers is not leader:
        old.same_program(job, leader, workers)
    processes = _processes(job.obj["spec"], job.notes)
    _elastic(job.obj["spec"].get("elasticPolicy"), job.notes)
    if not _launches(container):
        old.add_env(container, _environment(nodes))
        if processes not in (None, 1):
            job.notes.add("spec.nprocPerNode", "is not kept: the program is not started by torchrun")
            processes = None
    trainer = old.stock_fields(job, leader, container)
    numbers: Obj = {"numNodes": nodes} | ({"numProcPerNode": processes} if processes else {})
    if trainer is not None:
        stock = {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
        return Migrated([old.trainjob(job, stock, trainer | numbers)], job.notes.notes)
    node = old.replicated_job(job, leader, "node", container=container, ancestor=True)
    own = old.runtime(job, "torch", {"numNodes": nodes, "torch": {}}, [node], success=["node"])
    wanted = {"numProcPerNode": processes} if processes else None
    return Migrated([own, old.trainjob(job, old.reference(own), wanted)], job.notes.notes)


def _environment(nodes: int) -> list[Obj]:
    """What the operator gave to every pod, for a program that calls init_process_group itself."""
    return [
        old.JOBSET_NAME,
        {"name": "MASTER_ADDR", "value": old.host("node", 0)},
        {"name": "MASTER_PORT", "value": _PORT},
        {"name": "WORLD_SIZE", "value": str(nodes)},
        old.index_env("RANK"),
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]


def _launches(container: Obj) -> bool:
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    return any(launcher in word for word in words for launcher in _LAUNCHERS)


def _processes(spec: Obj, notes: Notes) -> int | None:
    """Processes on a node; None leaves it to the policy, which counts GPUs, else CPUs."""
    given: Any = spec.get("nprocPerNode")
    path = "spec.nprocPerNode"
    if given is None and (spec.get("elasticPolicy") or {}).get("nProcPerNode") is not None:
        given, path = spec["elasticPolicy"]["nProcPerNode"], "spec.elasticPolicy.nProcPerNode"
    if given is None:
        return None
    if str(given).isdecimal() and int(given) > 0:
        return int(given)
    notes.add(path, f"{given} is not kept: without a number the processes are counted by the node's GPUs, else its CPUs")
    return None


def _elastic(policy: Obj | None, notes: Notes) -> None:
    for field in policy or {}:
        if field == "nProcPerNode":
            continue
        text = "is not kept: the number of nodes is fixed, and Trainer sets the rendezvous"
        if field == "maxRestarts":
            text = "is not kept: set the variable PET_MAX_RESTARTS for restarts by torchrun itself"
        elif field in ("minReplicas", "maxReplicas", "metrics"):
            text = "is not kept: TrainJobs do not grow or shrink; numNodes is the number of replicas"
        notes.add(f"spec.elasticPolicy.{field}", text)
