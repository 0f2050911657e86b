"""TFJob: a replicated job for each replica type, and TF_CONFIG written out with the pod's own index left to the kubelet."""

from __future__ import annotations

import json

from trainwright.api.objects import Obj
from trainwright.migration import replica_job as old
from trainwright.migration.notes import Migrated, Notes

_TYPES = ("Chief", "Master", "PS", "Worker", "Evaluator")
_PORT = 2222
_INDEX = "REPLICA_INDEX"


def migrate_tf_job(obj: Obj) -> Migrated:
    """Raises Invalid."""
    job = old.read(obj, "tfReplicaSpecs", _TYPES, Notes())
    trains = job.at("Worker", "Chief", "Master", "PS", "Evaluator")
    assert trains is not None
    if job.obj["spec"].get("enableDynamicWorker"):
        job.notes.add("spec.enableDynamicWorker", "is not kept: the number of workers is fixed")
    jobs = []
    for replicas in job.replicas.values():
        container = replicas.container("tensorflow")
        if sum(other.count for other in job.replicas.values()) > 1:
            old.add_env(container, _environment(job, replicas))
        count = None if replicas is trains else replicas.count
        jobs.append(
            old.replicated_job(job, replicas, replicas.name, count=count, container=container, ancestor=replicas is trains)
        )
    own = old.runtime(job, "tensorflow", {"numNodes": trains.count}, jobs, success=[_decides(job)])
    return Migrated([own, old.trainjob(job, old.reference(own))], job.notes.notes)


def _decides(job: old.ReplicaJob) -> str:
    """The replicated job whose success is the job's: the chief's, else the workers'."""
    chief = job.at("Chief", "Master")
    if chief is not None:
        if job.obj["spec"].get("successPolicy") == "AllWorkers":
            job.notes.add("spec.successPolicy", "AllWorkers is not kept: the job succeeds with its chief")
        return chief.name
    decides = job.at("Worker", "PS", "Evaluator")
    assert decides is not None
    if decides.type == "Worker" and decides.count > 1 and job.obj["spec"].get("successPolicy") != "AllWorkers":
        job.notes.add("spec.successPolicy", "the job succeeds when all its workers have, not with the first")
    return decides.name


def _environment(job: old.ReplicaJob, replicas: old.Replicas) -> list[Obj]:
    """TF_CONFIG as the operator wrote it. Evaluators are not part of the cluster that they watch."""
    cluster = {
        other.name: [f"{old.host(other.name, index)}:{_port(other)}" for index in range(other.count)]
        for other in job.replicas.values()
        if other.type != "Evaluator"
    }
    config = json.dumps({"cluster": cluster, "task": {"type": replicas.name, "index": 0}, "environment": "cloud"})
    config = config.replace('"index": 0', f'"index": $({_INDEX})')
    return [old.JOBSET_NAME, old.index_env(_INDEX), {"name": "TF_CONFIG", "value": config}]


def _port(replicas: old.Replicas) -> int:
    ports = replicas.container("tensorflow").get("ports") or []
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "tfjob-port"), _PORT)
