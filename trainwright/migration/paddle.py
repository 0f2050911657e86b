"""Migrates a PaddleJob to nodes of one replicated job; paddle.distributed.launch uses the PADDLE_* variables."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job
from trainwright.migration.notes import MigrationResult, Notes

_PORT = 36543


def migrate_paddle_job(obj: Obj) -> MigrationResult:
    """Migrate a PaddleJob. Raises Invalid."""
    job = replica_job.parse(obj, "paddleReplicaSpecs", ("Master", "Worker"), Notes())
    leader, workers = job.first_of("Master", "Worker"), job.first_of("Worker")
    assert leader is not None
    nodes = sum(replicas.count for replicas in job.replicas.values())
    container = leader.container("paddle")
    if workers is not None and workers is not leader:
        replica_job.note_differences(job, leader, workers)
    for field in job.obj["spec"].get("elasticPolicy") or {}:
        job.notes.add(f"spec.elasticPolicy.{field}", "is not kept: the number of nodes is fixed")
    replica_job.add_env(container, _environment(container, nodes))
    node = replica_job.build_replicated_job(job, leader, "node", container=container, ancestor=True)
    runtime = replica_job.build_runtime(job, "paddle", {"numNodes": nodes}, [node], success=["node"])
    return MigrationResult([runtime, replica_job.build_trainjob(job, replica_job.runtime_ref(runtime))], job.notes.notes)


def _environment(container: Obj, nodes: int) -> list[Obj]:
    ports = [port["containerPort"] for port in container.get("ports") or [] if port.get("name") == "master"]
    address = f"{replica_job.host('node', 0)}:{ports[0] if ports else _PORT}"
    return [
        replica_job.JOBSET_NAME,
        {"name": "PADDLE_JOB_ID", "value": "$(JOBSET_NAME)"},
        {"name": "PADDLE_NNODES", "value": str(nodes)},
        {"name": "PADDLE_MASTER", "value": address},
        replica_job.index_env("PADDLE_TRAINER_ID"),
        {"name": "PADDLE_TRAINERS_NUM", "value": str(nodes)},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
