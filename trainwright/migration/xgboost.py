"""XGBoostJob, which LightGBM jobs are too: nodes of one replicated job, the tracker of the old operator on the first."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job as old
from trainwright.migration.notes import Migrated, Notes

_PORT = 9999


def migrate_xgboost_job(obj: Obj) -> Migrated:
    """Raises Invalid."""
    job = old.read(obj, "xgbReplicaSpecs", ("Master", "Worker"), Notes())
    leader, workers = job.at("Master", "Worker"), job.at("Worker")
    assert leader is not None
    nodes = sum(replicas.count for replicas in job.replicas.values())
    container = leader.container("xgboost")
    if workers is not None and workers is not leader:
        old.same_program(job, leader, workers)
    old.add_env(container, _environment(container, nodes))
    node = old.replicated_job(job, leader, "node", container=container, ancestor=True)
    own = old.runtime(job, "xgboost", {"numNodes": nodes}, [node], success=["node"])
    return Migrated([own, old.trainjob(job, old.reference(own))], job.notes.notes)


def _environment(container: Obj, nodes: int) -> list[Obj]:
    ports = [port["containerPort"] for port in container.get("ports") or [] if port.get("name") == "xgboostjob-port"]
    port = str(ports[0] if ports else _PORT)
    variables: list[Obj] = [
        old.JOBSET_NAME,
        {"name": "MASTER_ADDR", "value": old.host("node", 0)},
        {"name": "MASTER_PORT", "value": port},
        {"name": "WORLD_SIZE", "value": str(nodes)},
        old.index_env("RANK"),
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
    if nodes > 1:  # LightGBM's list of machines
        workers = ",".join(old.host("node", index) for index in range(1, nodes))
        variables += [{"name": "WORKER_PORT", "value": port}, {"name": "WORKER_ADDRS", "value": workers}]
    return variables
