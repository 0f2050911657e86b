"""PaddleJob: nodes of one replicated job, which paddle.distributed.launch joins by PADDLE_*."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job as old
from trainwright.migration.notes import Migrated, Notes

_PORT = 36543


def migrate_paddle_job(obj: Obj) -> Migrated:
    """Raises Invalid."""
    job = old.read(obj, "paddleReplicaSpecs", ("Master", "Worker"), Notes())
    leader, workers = job.at("Master", "Worker"), job.at("Worker")
    assert leader is not None
    nodes = sum(replicas.count for replicas in job.replicas.values())
    container = leader.container("paddle")
    if workers is not None and workers is not leader:
        old.same_program(job, leader, workers)
    for field in job.obj["spec"].get("elasticPolicy") or {}:
        job.notes.add(f"spec.elasticPolicy.{field}", "is not kept: the number of nodes is fixed")
    old.add_env(container, _environment(container, nodes))
    node = old.replicated_job(job, leader, "node", container=container, ancestor=True)
    own = old.runtime(job, "paddle", {"numNodes": nodes}, [node], success=["node"])
    return Migrated([own, old.trainjob(job, old.reference(own))], job.notes.notes)


def _environment(container: Obj, nodes: int) -> list[Obj]:
    ports = [port["containerPort"] for port in container.get("ports") or [] if port.get("name") == "master"]
    address = f"{old.host('node', 0)}:{ports[0] if ports else _PORT}"
    return [
        old.JOBSET_NAME,
        {"name": "PADDLE_JOB_ID", "value": "$(JOBSET_NAME)"},
        {"name": "PADDLE_NNODES", "value": str(nodes)},
        {"name": "PADDLE_MASTER", "value": address},
        old.index_env("PADDLE_TRAINER_ID"),
        {"name": "PADDLE_TRAINERS_NUM", "value": str(nodes)},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
