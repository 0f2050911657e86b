"""Migrates an XGBoostJob (also used for LightGBM) to nodes, with the tracker on the first."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.migration import pod_environment as env
from trainwright.migration.new_objects import Framework, JobSetPlan, note_differences, replicated_job, runtime_result
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, Placement, node_placement
from trainwright.migration.replica_job import ReplicaJob, ReplicaType, parse, port_of

_CONTAINER, _PORT_NAME, _PORT = "xgboost", "xgboostjob-port", 9999


def migrate_xgboost_job(obj: Obj) -> MigrationResult:
    """Migrate an XGBoostJob. Raises Invalid."""
    job = parse(obj, "xgbReplicaSpecs", (ReplicaType("Master", only_one=True), ReplicaType("Worker")), Notes())
    placement = node_placement(job.first_of("Master"), job.first_of("Worker"))
    note_differences(job, placement)
    rename_pods(job, placement)

    def environment(_place: Place) -> list[Obj]:
        return _environment(job, placement)

    framework = Framework("xgboost", _CONTAINER, environment)
    jobs = [replicated_job(job, framework, place, is_trainer=place.job == names.NODE) for place in placement.jobs]
    nodes = 1 if placement.is_split else job.pods
    return runtime_result(job, framework, placement, jobs, JobSetPlan({"numNodes": nodes}, [made["name"] for made in jobs]))


def _environment(job: ReplicaJob, placement: Placement) -> list[Obj]:
    leader, workers = placement.jobs[0].replicas, job.first_of("Worker")
    variables: list[Obj] = [
        env.JOBSET_NAME,
        env.value("MASTER_PORT", port_of(leader, _CONTAINER, _PORT_NAME, _PORT)),
        env.value("MASTER_ADDR", placement.host(leader, 0, env.JOBSET)),
        env.value("WORLD_SIZE", job.pods),
        env.rank("RANK", is_split=placement.is_split),
        env.value("PYTHONUNBUFFERED", 1),
    ]
    if workers is not None and job.pods > 1:  # LightGBM's list of machines
        first = 1 if workers is leader else 0
        hosts = [placement.host(workers, number, env.JOBSET) for number in range(first, workers.count)]
        variables += [
            env.value("WORKER_PORT", port_of(workers, _CONTAINER, _PORT_NAME, _PORT)),
            env.value("WORKER_ADDRS", ",".join(hosts)),
        ]
    return variables
