"""Migrates a JAXJob to nodes of one replicated job, with the old operator's variables in addition to Trainer's JAX_*."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.migration import pod_environment as env
from trainwright.migration.new_objects import Framework, JobSetPlan, replicated_job, runtime_result, stock_result
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, node_placement
from trainwright.migration.replica_job import Replicas, ReplicaType, parse, port_of

_CONTAINER, _PORT_NAME, _PORT = "jax", "jaxjob-port", 6666


def migrate_jax_job(obj: Obj) -> MigrationResult:
    """Migrate a JAXJob. Raises Invalid."""
    job = parse(obj, "jaxReplicaSpecs", (ReplicaType("Worker"),), Notes())
    placement = node_placement(job.first_of("Worker"))
    rename_pods(job, placement)
    host = placement.host(placement.jobs[0].replicas, 0, env.JOBSET)

    def environment(place: Place) -> list[Obj]:
        return _environment(place.replicas, host)

    framework, numbers = Framework("jax", _CONTAINER, environment), {"numNodes": job.pods}
    stock = stock_result(job, framework, placement, "jax-distributed", numbers)
    if stock is not None:
        return stock
    jobs = [replicated_job(job, framework, place, is_trainer=True) for place in placement.jobs]
    return runtime_result(job, framework, placement, jobs, JobSetPlan({**numbers, "jax": {}}, ["node"], numbers))


def _environment(workers: Replicas, coordinator: str) -> list[Obj]:
    return [
        env.value("PYTHONUNBUFFERED", 1),
        env.JOBSET_NAME,
        env.value("COORDINATOR_PORT", port_of(workers, _CONTAINER, _PORT_NAME, _PORT)),
        env.value("COORDINATOR_ADDRESS", coordinator),
        env.value("NUM_PROCESSES", workers.count),
        env.index("PROCESS_ID"),
    ]
