"""Migrates an XGBoostJob (also used for LightGBM) to nodes of one replicated job, with the tracker on the first."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job
from trainwright.migration.notes import MigrationResult, Notes

_PORT = 9999


def migrate_xgboost_job(obj: Obj) -> MigrationResult:
    """Migrate an XGBoostJob. Raises Invalid."""
    job = replica_job.parse(obj, "xgbReplicaSpecs", ("Master", "Worker"), Notes())
    leader, workers = job.first_of("Master", "Worker"), job.first_of("Worker")
    assert leader is not None
    nodes = sum(replicas.count for replicas in job.replicas.values())
    container = leader.container("xgboost")
    if workers is not None and workers is not leader:
        replica_job.note_differences(job, leader, workers)
    replica_job.add_env(container, _environment(container, nodes))
    node = replica_job.build_replicated_job(job, leader, "node", container=container, ancestor=True)
    runtime = replica_job.build_runtime(job, "xgboost", {"numNodes": nodes}, [node], success=["node"])
    return MigrationResult([runtime, replica_job.build_trainjob(job, replica_job.runtime_ref(runtime))], job.notes.notes)


def _environment(container: Obj, nodes: int) -> list[Obj]:
    ports = [port["containerPort"] for port in container.get("ports") or [] if port.get("name") == "xgboostjob-port"]
    port = str(ports[0] if ports else _PORT)
    variables: list[Obj] = [
        replica_job.JOBSET_NAME,
        {"name": "MASTER_ADDR", "value": replica_job.host("node", 0)},
        {"name": "MASTER_PORT", "value": port},
        {"name": "WORLD_SIZE", "value": str(nodes)},
        replica_job.index_env("RANK"),
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
    if nodes > 1:  # LightGBM's list of machines
        workers = ",".join(replica_job.host("node", index) for index in range(1, nodes))
        variables += [{"name": "WORKER_PORT", "value": port}, {"name": "WORKER_ADDRS", "value": workers}]
    return variables
