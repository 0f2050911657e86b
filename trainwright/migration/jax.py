"""JAXJob: nodes of one replicated job, with the operator's own variables beside Trainer's JAX_*."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import replica_job as old
from trainwright.migration.notes import Migrated, Notes

_PORT = "6666"


def migrate_jax_job(obj: Obj) -> Migrated:
    """Raises Invalid."""
    job = old.read(obj, "jaxReplicaSpecs", ("Worker",), Notes())
    workers = job.replicas["Worker"]
    container = workers.container("jax")
    variables: list[Obj] = [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        old.JOBSET_NAME,
        {"name": "COORDINATOR_ADDRESS", "value": old.host("node", 0)},
        {"name": "COORDINATOR_PORT", "value": _PORT},
        {"name": "NUM_PROCESSES", "value": str(workers.count)},
        old.index_env("PROCESS_ID"),
    ]
    old.add_env(container, variables)
    trainer = old.stock_fields(job, workers, container)
    if trainer is not None:
        stock = {"kind": "ClusterTrainingRuntime", "name": "jax-distributed"}
        return Migrated([old.trainjob(job, stock, trainer | {"numNodes": workers.count})], job.notes.notes)
    node = old.replicated_job(job, workers, "node", container=container, ancestor=True)
    own = old.runtime(job, "jax", {"numNodes": workers.count, "jax": {}}, [node], success=["node"])
    return Migrated([own, old.trainjob(job, old.reference(own))], job.notes.notes)
