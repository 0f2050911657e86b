"""Evaluates the success policy of a JobSet: it succeeds when all, or any, of its target Jobs have."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.controlplane.controllers.jobset.children import Children, replicated_job_of


def has_succeeded(jobset: Obj, children: Children) -> bool:
    """Whether the JobSet has succeeded. False until a Job of the current attempt has completed; the default policy is All."""
    if not children.successful:
        return False
    policy = jobset["spec"].get("successPolicy") or {"operator": "All"}
    replicated = jobset["spec"].get("replicatedJobs") or []
    targets = set(policy.get("targetReplicatedJobs") or [job["name"] for job in replicated])
    succeeded = sum(replicated_job_of(job) in targets for job in children.successful)
    needed = 1 if policy["operator"] == "Any" else sum(job.get("replicas", 1) for job in replicated if job["name"] in targets)
    return succeeded >= needed
