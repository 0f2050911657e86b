"""The Jobs of a JobSet, sorted by attempt and outcome, and the counters that its status shows of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.objects import Obj, labels_of


@dataclass
class Children:
    """`previous` are Jobs of an earlier attempt, on their way out; the others belong to the current one."""

    previous: list[Obj] = field(default_factory=list)
    active: list[Obj] = field(default_factory=list)
    successful: list[Obj] = field(default_factory=list)
    failed: list[Obj] = field(default_factory=list)

    @property
    def all(self) -> list[Obj]:
        return [*self.previous, *self.active, *self.successful, *self.failed]


def sorted_children(jobs: list[Obj], restarts: int) -> Children:
    """Bucket the owned Jobs. A Job without a readable attempt label counts as current."""
    children = Children()
    for job in sorted(jobs, key=lambda job: str(job["metadata"]["name"])):
        attempt = labels_of(job).get(names.RESTART_ATTEMPT_LABEL, "")
        if attempt.isdigit() and int(attempt) < restarts:
            children.previous.append(job)
        elif is_true(job, "Complete"):
            children.successful.append(job)
        elif is_true(job, "Failed"):
            children.failed.append(job)
        else:
            children.active.append(job)
    return children


def replicated_job_of(job: Obj) -> str:
    return labels_of(job).get(names.REPLICATED_JOB_LABEL, "")


def is_ready(job: Obj) -> bool:
    """All pods of the Job are ready or have succeeded."""
    status, spec = job.get("status") or {}, job["spec"]
    parallelism = spec.get("parallelism", 1)
    wanted = min(parallelism, spec["completions"]) if spec.get("completions") is not None else parallelism
    return bool((status.get("succeeded") or 0) + (status.get("ready") or 0) >= wanted)


def counters(jobset: Obj, children: Children) -> list[Obj]:
    """`status.replicatedJobsStatus`, in the order of the spec reversed by name, as the real controller stores it."""
    entries = []
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        name = replicated["name"]
        active = [job for job in children.active if replicated_job_of(job) == name]
        entries.append(
            {
                "name": name,
                "ready": sum(is_ready(job) for job in active),
                "succeeded": sum(replicated_job_of(job) == name for job in children.successful),
                "failed": sum(replicated_job_of(job) == name for job in children.failed),
                "active": sum(((job.get("status") or {}).get("active") or 0) > 0 for job in active),
                "suspended": sum(bool(job["spec"].get("suspend")) for job in active),
            }
        )
    return sorted(entries, key=lambda entry: entry["name"], reverse=True)
