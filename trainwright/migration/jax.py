"""Migrates a JAXJob to nodes of one replicated job, with the old operator's variables in addition to Trainer's JAX_*."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job
from trainwright.migration.notes import MigrationResult, Notes

_PORT = "6666"


def migrate_jax_job(obj: Obj) -> MigrationResult:
    """Migrate a JAXJob. Raises Invalid."""
    job = replica_job.parse(obj, "jaxReplicaSpecs", ("Worker",), Notes())
    workers = job.replicas["Worker"]
    container = workers.container("jax")
    variables: list[Obj] = [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        replica_job.JOBSET_NAME,
        {"name": "COORDINATOR_ADDRESS", "value": replica_job.host("node", 0)},
        {"name": "COORDINATOR_PORT", "value": _PORT},
        {"name": "NUM_PROCESSES", "value": str(workers.count)},
        replica_job.index_env("PROCESS_ID"),
    ]
    replica_job.add_env(container, variables)
    trainer = replica_job.trainer_fields(job, workers, container)
    if trainer is not None:
        stock = {"kind": "ClusterTrainingRuntime", "name": "jax-distributed"}
        return MigrationResult([replica_job.build_trainjob(job, stock, trainer | {"numNodes": workers.count})], job.notes.notes)
    node = replica_job.build_replicated_job(job, workers, "node", container=container, ancestor=True)
    runtime = replica_job.build_runtime(job, "jax", {"numNodes": workers.count, "jax": {}}, [node], success=["node"])
    return MigrationResult([runtime, replica_job.build_trainjob(job, replica_job.runtime_ref(runtime))], job.notes.notes)
