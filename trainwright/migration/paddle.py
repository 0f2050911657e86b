"""Migrates a PaddleJob; paddle.distributed.launch uses the PADDLE_* variables.

The launcher of the first pod starts the store only if PADDLE_MASTER is that pod's own IP address. So this pod has a variable
that the others do not have, and is a replicated job alone.
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.migration import pod_environment as env
from trainwright.migration.new_objects import Framework, JobSetPlan, replicated_job, runtime_result
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, Placement
from trainwright.migration.replica_job import ReplicaJob, ReplicaType, parse, port_of

_CONTAINER, _PORT_NAME, _PORT = "paddle", "master", 36543


def migrate_paddle_job(obj: Obj) -> MigrationResult:
    """Migrate a PaddleJob. Raises Invalid."""
    job = parse(obj, "paddleReplicaSpecs", (ReplicaType("Master", "OnFailure"), ReplicaType("Worker", "OnFailure")), Notes())
    placement = _placement(job)
    rename_pods(job, placement)
    for field in job.spec.get("elasticPolicy") or {}:
        job.notes.add(f"spec.elasticPolicy.{field}", "is not kept: the number of nodes is fixed")

    def environment(place: Place) -> list[Obj]:
        return _environment(job, placement, place)

    framework = Framework("paddle", _CONTAINER, environment)
    jobs = []
    for place in placement.jobs:
        is_first = place.job == names.NODE
        jobs.append(replicated_job(job, framework, place, is_trainer=is_first, count=None if is_first else place.count))
    return runtime_result(job, framework, placement, jobs, JobSetPlan({"numNodes": 1}, [made["name"] for made in jobs]))


def _placement(job: ReplicaJob) -> Placement:
    leader = job.first_of("Master", "Worker")
    assert leader is not None, "a parsed job has pods"
    places = [Place(names.NODE, leader, 1)]
    if leader.count > 1:
        places.append(Place(leader.name, leader, leader.count - 1, first=1))
    places += [Place(other.name, other, other.count) for other in job.replicas.values() if other is not leader and other.count]
    return Placement(tuple(places))


def _environment(job: ReplicaJob, placement: Placement, place: Place) -> list[Obj]:
    leader = placement.places[0].replicas
    port = port_of(leader, _CONTAINER, _PORT_NAME, _PORT)
    variables = [env.JOBSET_NAME, env.value("PADDLE_JOB_ID", env.JOBSET), env.value("PADDLE_NNODES", job.pods)]
    if place.job == names.NODE:
        variables += [env.field("POD_IP_DUMMY", "status.podIP"), env.value("PADDLE_MASTER", f"$(POD_IP_DUMMY):{port}")]
    else:
        variables.append(env.value("PADDLE_MASTER", f"{placement.host(leader, 0, env.JOBSET)}:{port}"))
    if leader.type == "Master":  # parameter servers and trainers
        variables.append(env.value("PADDLE_SERVER_NUM" if place.replicas is leader else "PADDLE_TRAINER_NUM", 1))
    return [*variables, env.value("PYTHONUNBUFFERED", 1)]
