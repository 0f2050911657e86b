"""Migrates a TFJob to one replicated job per replica type, with TF_CONFIG in which the kubelet expands the pod's index."""

from __future__ import annotations

import json

from trainwright.api.objects import Obj
from trainwright.migration import replica_job
from trainwright.migration.notes import MigrationResult, Notes

_TYPES = ("Chief", "Master", "PS", "Worker", "Evaluator")
_PORT = 2222
_INDEX = "REPLICA_INDEX"


def migrate_tf_job(obj: Obj) -> MigrationResult:
    """Migrate a TFJob. Raises Invalid."""
    job = replica_job.parse(obj, "tfReplicaSpecs", _TYPES, Notes())
    trains = job.first_of("Worker", "Chief", "Master", "PS", "Evaluator")
    assert trains is not None
    if job.obj["spec"].get("enableDynamicWorker"):
        job.notes.add("spec.enableDynamicWorker", "is not kept: the number of workers is fixed")
    jobs = []
    for replicas in job.replicas.values():
        container = replicas.container("tensorflow")
        if sum(other.count for other in job.replicas.values()) > 1:
            replica_job.add_env(container, _environment(job, replicas))
        count = None if replicas is trains else replicas.count
        jobs.append(
            replica_job.build_replicated_job(
                job, replicas, replicas.name, count=count, container=container, ancestor=replicas is trains
            )
        )
    runtime = replica_job.build_runtime(job, "tensorflow", {"numNodes": trains.count}, jobs, success=[_deciding_job(job)])
    return MigrationResult([runtime, replica_job.build_trainjob(job, replica_job.runtime_ref(runtime))], job.notes.notes)


def _deciding_job(job: replica_job.ReplicaJob) -> str:
    """Return the replicated job that determines success: the chief's, else the workers'."""
    chief = job.first_of("Chief", "Master")
    if chief is not None:
        if job.obj["spec"].get("successPolicy") == "AllWorkers":
            job.notes.add("spec.successPolicy", "AllWorkers is not kept: the job succeeds when its chief does")
        return chief.name
    decides = job.first_of("Worker", "PS", "Evaluator")
    assert decides is not None
    if decides.type == "Worker" and decides.count > 1 and job.obj["spec"].get("successPolicy") != "AllWorkers":
        job.notes.add("spec.successPolicy", "the job now succeeds when all workers have succeeded, not just the first")
    return decides.name


def _environment(job: replica_job.ReplicaJob, replicas: replica_job.Replicas) -> list[Obj]:
    """Return TF_CONFIG as the old operator set it. Evaluators are not part of the cluster."""
    cluster = {
        other.name: [f"{replica_job.host(other.name, index)}:{_port(other)}" for index in range(other.count)]
        for other in job.replicas.values()
        if other.type != "Evaluator"
    }
    config = json.dumps({"cluster": cluster, "task": {"type": replicas.name, "index": 0}, "environment": "cloud"})
    config = config.replace('"index": 0', f'"index": $({_INDEX})')
    return [replica_job.JOBSET_NAME, replica_job.index_env(_INDEX), {"name": "TF_CONFIG", "value": config}]


def _port(replicas: replica_job.Replicas) -> int:
    ports = replicas.container("tensorflow").get("ports") or []
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "tfjob-port"), _PORT)
