"""Migrates a TFJob to one replicated job per replica type, with TF_CONFIG in which the kubelet expands the pod's index."""

from __future__ import annotations

import json

from trainwright.api.objects import Obj
from trainwright.migration import pod_environment as env
from trainwright.migration.new_objects import Framework, JobSetPlan, replicated_job, runtime_result
from trainwright.migration.notes import MigrationResult, Notes
from trainwright.migration.old_names import rename_pods
from trainwright.migration.placement import Place, Placement
from trainwright.migration.replica_job import ReplicaJob, Replicas, ReplicaType, parse, port_of

_TYPES = tuple(ReplicaType(name) for name in ("Chief", "Master", "PS", "Worker", "Evaluator"))
_CONTAINER, _PORT_NAME, _PORT = "tensorflow", "tfjob-port", 2222
_INDEX = "REPLICA_INDEX"


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
        return _environment(job, placement, place.replicas) if job.pods > 1 else []

    framework = Framework("tensorflow", _CONTAINER, environment, every_container=False)
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


def _environment(job: ReplicaJob, placement: Placement, replicas: Replicas) -> list[Obj]:
    """Return TF_CONFIG as the old operator set it. Evaluators are not part of the cluster."""
    cluster = {}
    for other in job.replicas.values():
        if other.type != "Evaluator":
            port = port_of(other, _CONTAINER, _PORT_NAME, _PORT)
            cluster[other.name] = [f"{placement.host(other, index, env.JOBSET)}:{port}" for index in range(other.count)]
    config = json.dumps({"cluster": cluster, "task": {"type": replicas.name, "index": 0}, "environment": "cloud"})
    config = config.replace('"index": 0', f'"index": $({_INDEX})')
    return [env.JOBSET_NAME, env.index(_INDEX), env.value("TF_CONFIG", config)]
