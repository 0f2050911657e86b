"""Migrates jobs whose processes find each other by variables alone: TFJob, PaddleJob, JAXJob and XGBoostJob.

A TFJob becomes one replicated job per replica type, with TF_CONFIG in which the kubelet expands the pod's index. A JAXJob becomes
nodes of one replicated job, with the old operator's variables in addition to Trainer's JAX_*; an XGBoostJob (also used for
LightGBM) becomes nodes, with the tracker on the first. paddle.distributed.launch starts the store on the first pod only if
PADDLE_MASTER is that pod's own IP address: so this pod has a variable that the others do not have, and is a replicated job alone.
"""

from __future__ import annotations

import json

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.migration import placement as env
from trainwright.migration.new_objects import (
    Framework,
    JobSetPlan,
    note_differences,
    replicated_job,
    runtime_result,
    stock_result,
)
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, Placement, node_placement
from trainwright.migration.replica_job import ReplicaJob, Replicas, ReplicaType, parse, port_of

_TYPES = tuple(ReplicaType(name) for name in ("Chief", "Master", "PS", "Worker", "Evaluator"))
_TENSORFLOW_CONTAINER, _TENSORFLOW_PORT_NAME, _TENSORFLOW_PORT = "tensorflow", "tfjob-port", 2222
_INDEX = "REPLICA_INDEX"
_PADDLE_CONTAINER, _PADDLE_PORT_NAME, _PADDLE_PORT = "paddle", "master", 36543
_JAX_CONTAINER, _JAX_PORT_NAME, _JAX_PORT = "jax", "jaxjob-port", 6666
_XGBOOST_CONTAINER, _XGBOOST_PORT_NAME, _XGBOOST_PORT = "xgboost", "xgboostjob-port", 9999


def migrate_tf_job(obj: Obj) -> MigrationResult:
    """Migrate a TFJob. Raises Invalid."""
    job = parse(obj, "tfReplicaSpecs", _TYPES, Notes())
    trains = job.first_of("Worker", "Chief", "Master", "PS", "Evaluator")
    assert trains is not None, "a parsed job has pods"
    placement = Placement(
        tuple(Place(replicas.name, replicas, replicas.count) for replicas in job.replicas.values() if replicas.count)
    )
    rename_pods(job, placement)
    if job.spec.get("enableDynamicWorker"):
        job.notes.add("spec.enableDynamicWorker", "is not kept: the number of workers is fixed")

    def environment(place: Place) -> list[Obj]:
        return _tensorflow_environment(job, placement, place.replicas) if job.pods > 1 else []

    framework = Framework("tensorflow", _TENSORFLOW_CONTAINER, environment, every_container=False)
    jobs = []
    for place in placement.jobs:
        is_trainer = place.replicas is trains
        jobs.append(replicated_job(job, framework, place, is_trainer=is_trainer, count=None if is_trainer else place.count))
    decides = _deciding_replicas(job)
    ended = [place.job for place in placement.jobs if place.replicas is not decides]
    if ended and job.run_policy.get("cleanPodPolicy") is None:  # the operator's default let them run on
        text = f"pods of {', '.join(ended)} that still run are terminated when {decides.name} has succeeded"
        job.notes.add("spec.runPolicy.cleanPodPolicy", text)
    return runtime_result(job, framework, placement, jobs, JobSetPlan({"numNodes": trains.count}, [decides.name]))


def _deciding_replicas(job: ReplicaJob) -> Replicas:
    """Return the replicas that determine success: the chief, else the workers."""
    chief = job.first_of("Chief", "Master")
    if chief is not None:
        if job.spec.get("successPolicy") == "AllWorkers":
            job.notes.add("spec.successPolicy", "AllWorkers is not kept: the job succeeds when its chief does")
        return chief
    decides = job.first_of("Worker", "PS", "Evaluator")
    assert decides is not None, "a parsed job has pods"
    if decides.type == "Worker" and decides.count > 1 and job.spec.get("successPolicy") != "AllWorkers":
        job.notes.add("spec.successPolicy", "the job now succeeds when all workers have succeeded, not just the first")
    return decides


def _tensorflow_environment(job: ReplicaJob, placement: Placement, replicas: Replicas) -> list[Obj]:
    """Return TF_CONFIG as the old operator set it. Evaluators are not part of the cluster."""
    cluster = {}
    for other in job.replicas.values():
        if other.type != "Evaluator":
            port = port_of(other, _TENSORFLOW_CONTAINER, _TENSORFLOW_PORT_NAME, _TENSORFLOW_PORT)
            cluster[other.name] = [f"{placement.host(other, index, env.JOBSET)}:{port}" for index in range(other.count)]
    config = json.dumps({"cluster": cluster, "task": {"type": replicas.name, "index": 0}, "environment": "cloud"})
    config = config.replace('"index": 0', f'"index": $({_INDEX})')
    return [env.JOBSET_NAME, env.index(_INDEX), env.value("TF_CONFIG", config)]


def migrate_paddle_job(obj: Obj) -> MigrationResult:
    """Migrate a PaddleJob. Raises Invalid."""
    job = parse(obj, "paddleReplicaSpecs", (ReplicaType("Master", "OnFailure"), ReplicaType("Worker", "OnFailure")), Notes())
    placement = _placement(job)
    rename_pods(job, placement)
    for field in job.spec.get("elasticPolicy") or {}:
        job.notes.add(f"spec.elasticPolicy.{field}", "is not kept: the number of nodes is fixed")

    def environment(place: Place) -> list[Obj]:
        return _paddle_environment(job, placement, place)

    framework = Framework("paddle", _PADDLE_CONTAINER, environment)
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


def _paddle_environment(job: ReplicaJob, placement: Placement, place: Place) -> list[Obj]:
    leader = placement.places[0].replicas
    port = port_of(leader, _PADDLE_CONTAINER, _PADDLE_PORT_NAME, _PADDLE_PORT)
    variables = [env.JOBSET_NAME, env.value("PADDLE_JOB_ID", env.JOBSET), env.value("PADDLE_NNODES", job.pods)]
    if place.job == names.NODE:
        variables += [env.field("POD_IP_DUMMY", "status.podIP"), env.value("PADDLE_MASTER", f"$(POD_IP_DUMMY):{port}")]
    else:
        variables.append(env.value("PADDLE_MASTER", f"{placement.host(leader, 0, env.JOBSET)}:{port}"))
    if leader.type == "Master":  # parameter servers and trainers
        variables.append(env.value("PADDLE_SERVER_NUM" if place.replicas is leader else "PADDLE_TRAINER_NUM", 1))
    return [*variables, env.value("PYTHONUNBUFFERED", 1)]


def migrate_jax_job(obj: Obj) -> MigrationResult:
    """Migrate a JAXJob. Raises Invalid."""
    job = parse(obj, "jaxReplicaSpecs", (ReplicaType("Worker"),), Notes())
    placement = node_placement(job.first_of("Worker"))
    rename_pods(job, placement)
    host = placement.host(placement.jobs[0].replicas, 0, env.JOBSET)

    def environment(place: Place) -> list[Obj]:
        return _jax_environment(place.replicas, host)

    framework, numbers = Framework("jax", _JAX_CONTAINER, environment), {"numNodes": job.pods}
    stock = stock_result(job, framework, placement, "jax-distributed", numbers)
    if stock is not None:
        return stock
    jobs = [replicated_job(job, framework, place, is_trainer=True) for place in placement.jobs]
    return runtime_result(job, framework, placement, jobs, JobSetPlan({**numbers, "jax": {}}, ["node"], numbers))


def _jax_environment(workers: Replicas, coordinator: str) -> list[Obj]:
    return [
        env.value("PYTHONUNBUFFERED", 1),
        env.JOBSET_NAME,
        env.value("COORDINATOR_PORT", port_of(workers, _JAX_CONTAINER, _JAX_PORT_NAME, _JAX_PORT)),
        env.value("COORDINATOR_ADDRESS", coordinator),
        env.value("NUM_PROCESSES", workers.count),
        env.index("PROCESS_ID"),
    ]


def migrate_xgboost_job(obj: Obj) -> MigrationResult:
    """Migrate an XGBoostJob. Raises Invalid."""
    job = parse(obj, "xgbReplicaSpecs", (ReplicaType("Master", only_one=True), ReplicaType("Worker")), Notes())
    placement = node_placement(job.first_of("Master"), job.first_of("Worker"))
    note_differences(job, placement)
    rename_pods(job, placement)

    def environment(_place: Place) -> list[Obj]:
        return _xgboost_environment(job, placement)

    framework = Framework("xgboost", _XGBOOST_CONTAINER, environment)
    jobs = [replicated_job(job, framework, place, is_trainer=place.job == names.NODE) for place in placement.jobs]
    nodes = 1 if placement.is_split else job.pods
    return runtime_result(job, framework, placement, jobs, JobSetPlan({"numNodes": nodes}, [made["name"] for made in jobs]))


def _xgboost_environment(job: ReplicaJob, placement: Placement) -> list[Obj]:
    leader, workers = placement.jobs[0].replicas, job.first_of("Worker")
    variables: list[Obj] = [
        env.JOBSET_NAME,
        env.value("MASTER_PORT", port_of(leader, _XGBOOST_CONTAINER, _XGBOOST_PORT_NAME, _XGBOOST_PORT)),
        env.value("MASTER_ADDR", placement.host(leader, 0, env.JOBSET)),
        env.value("WORLD_SIZE", job.pods),
        env.rank("RANK", is_split=placement.is_split),
        env.value("PYTHONUNBUFFERED", 1),
    ]
    if workers is not None and job.pods > 1:  # LightGBM's list of machines
        first = 1 if workers is leader else 0
        hosts = [placement.host(workers, number, env.JOBSET) for number in range(first, workers.count)]
        variables += [
            env.value("WORKER_PORT", port_of(workers, _XGBOOST_CONTAINER, _XGBOOST_PORT_NAME, _XGBOOST_PORT)),
            env.value("WORKER_ADDRS", ",".join(hosts)),
        ]
    return variables
