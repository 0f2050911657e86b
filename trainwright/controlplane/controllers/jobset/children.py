"""Classifies the Jobs of a JobSet by attempt and result, and computes the counters for its status."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.controlplane.controllers.controller import TerminalError


@dataclass
class Children:
    """`previous` are Jobs of an earlier attempt, to be deleted; the others belong to the current one."""

    previous: list[Obj] = field(default_factory=list)
    active: list[Obj] = field(default_factory=list)
    successful: list[Obj] = field(default_factory=list)
    failed: list[Obj] = field(default_factory=list)

    @property
    def all(self) -> list[Obj]:
        return [*self.previous, *self.active, *self.successful, *self.failed]

    def active_of(self, replicated: str) -> list[Obj]:
        return [job for job in self.active if replicated_job_of(job) == replicated]


def classify_children(jobs: list[Obj], status: Obj) -> Children:
    """Classify the owned Jobs. Raises TerminalError for a Job with an invalid attempt label."""
    children = Children()
    for job in sorted(jobs, key=name_of):
        if _label_number(job, names.RESTART_ATTEMPT_LABEL) < int(status.get("restarts") or 0):
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
    """Whether all pods of the Job are ready or have succeeded."""
    status, spec = job.get("status") or {}, job["spec"]
    parallelism = spec.get("parallelism", 1)
    needed = min(parallelism, spec["completions"]) if spec.get("completions") is not None else parallelism
    return bool((status.get("succeeded") or 0) + (status.get("ready") or 0) >= needed)


def counters(jobset: Obj, children: Children) -> list[Obj]:
    """Return `status.replicatedJobsStatus`, in descending order of names, like upstream."""
    entries = []
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        name = replicated["name"]
        active = children.active_of(name)
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


def _label_number(job: Obj, label: str) -> int:
    text = labels_of(job).get(label, "")
    number = parse_count(text)
    if number is None:
        raise TerminalError(f"the label {label} of Job {name_of(job)} must be a number, not {text!r}")
    return number
