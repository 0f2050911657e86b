"""The Jobs of a JobSet in one reconcile: classified by attempt and result, with the new status and the Events to record after it is
written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from trainwright.api import names
from trainwright.api.conditions import condition, is_true, set_condition
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.api.times import rfc3339
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
        label = names.RESTART_ATTEMPT_LABEL
        attempt = parse_count(text := labels_of(job).get(label, ""))
        if attempt is None:
            raise TerminalError(f"the label {label} of Job {name_of(job)} must be a number, not {text!r}")
        if attempt < int(status.get("restarts") or 0):
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


@dataclass
class ReconcileState:
    """`status` is the new status; `jobset["status"]` is the same object."""

    jobset: Obj
    status: Obj
    children: Children
    now: datetime
    events: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def is_suspended(self) -> bool:
        return bool(self.jobset["spec"].get("suspend"))

    @property
    def replicated_jobs(self) -> list[Obj]:
        return list(self.jobset["spec"].get("replicatedJobs") or [])

    @property
    def counters(self) -> list[Obj]:
        return list(self.status.get("replicatedJobsStatus") or [])

    def update_condition(self, kind: str, value: bool, reason: str, message: str, severity: str = "Normal") -> bool:
        """Set a condition; a missing one is not set to False. Adds an Event if it changes. Returns whether it changed."""
        if not value and condition(self.jobset, kind) is None:
            return False
        changed = set_condition(self.status, kind, value, reason, message, rfc3339(self.now))
        if changed:
            self.add_event(severity, reason, message)
        return changed

    def add_event(self, severity: str, reason: str, message: str) -> None:
        self.events.append((severity, reason, message))

    def fail(self, reason: str, message: str) -> None:
        self.update_condition("Failed", True, reason, message, "Warning")
        self.update_condition("RestartingJobSet", False, "JobSetFailed", "jobset failed")
        self.status["terminalState"] = "Failed"

    def complete(self) -> None:
        self.update_condition("Completed", True, "AllJobsCompleted", "jobset completed successfully")
        self.update_condition("RestartingJobSet", False, "JobSetCompleted", "jobset completed successfully")
        self.status["terminalState"] = "Completed"
