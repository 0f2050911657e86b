"""Converts the restart policy of a replica type, and the run policy's backoffLimit, to fields of the pod and of its Job."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.objects import Obj
from trainwright.migration.replica_job import ReplicaJob, Replicas

_FIRST_RETRYABLE_EXIT_CODE = 128
BACKOFF = 6
"""The default backoffLimit of a batch/v1 Job. The training operator had no limit by default."""


@dataclass(frozen=True)
class Restarts:
    """The restart policy of the pods, and the fields of their Job."""

    pod: str
    job: Obj

    @property
    def is_default(self) -> bool:
        """Whether this is what JobSet and Kubernetes set if a runtime says nothing, as the bundled ones do."""
        return self.pod == "OnFailure" and self.job == {"backoffLimit": BACKOFF}


def restarts_of(job: ReplicaJob, replicas: Replicas) -> Restarts:
    """Convert the restart policy of a replica type."""
    limit = job.run_policy.get("backoffLimit")
    retries = {"backoffLimit": BACKOFF if limit is None else limit}
    if replicas.restart_policy in ("Always", "OnFailure"):
        return Restarts("OnFailure", retries)
    if replicas.restart_policy == "ExitCode":
        codes = {"operator": "In", "values": list(range(1, _FIRST_RETRYABLE_EXIT_CODE))}
        return Restarts("Never", retries | {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}})
    return Restarts("Never", {"backoffLimit": 0})


def note_restarts(job: ReplicaJob, replicas: Replicas) -> None:
    """Add a note on a policy that Jobs do not have."""
    texts = {
        "Always": "Always became OnFailure: a Job does not restart pods that have succeeded",
        "ExitCode": "ExitCode became a podFailurePolicy: exit codes below 128 fail the job, others are retried",
    }
    if replicas.restart_policy in texts:
        job.notes.add(f"{replicas.path}.restartPolicy", texts[replicas.restart_policy])
