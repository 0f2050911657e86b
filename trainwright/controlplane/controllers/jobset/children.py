"""Classifies the Jobs of a JobSet by attempt and result, and computes the counters for its status."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, labels_of, name_of, named
from trainwright.controlplane.controllers.controller import TerminalError

JOB_RESTART_ATTEMPT_LABEL = "jobset.sigs.k8s.io/job-restart-attempt"
_COUNTERS = ("jobRestarts", "jobRestartsCountTowardsMax")


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


def classify_children(jobs: list[Obj], status: Obj, *, single_restarts: bool = False) -> Children:
    """Classify the owned Jobs. Raises TerminalError for a Job with an invalid attempt label.

    `single_restarts`: Jobs may have been restarted individually, so that older ones of these are previous ones, too.
    """
    children = Children()
    for job in sorted(jobs, key=name_of):
        is_older = _label_number(job, names.RESTART_ATTEMPT_LABEL) < int(status.get("restarts") or 0)
        if is_older or (single_restarts and _is_outdated(job, status)):
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


def restarts_of(status: Obj, replicated: str, index: int) -> int:
    """Return how often this Job was restarted individually."""
    entry = named(status.get("replicatedJobsStatus"), replicated) or {}
    restarts = entry.get("jobRestarts") or []
    return int(restarts[index]) if index < len(restarts) else 0


def index_of(job: Obj) -> int:
    """Return the Job's index among its replicas. Raises TerminalError."""
    return _label_number(job, names.JOB_INDEX_LABEL)


def is_ready(job: Obj) -> bool:
    """Whether all pods of the Job are ready or have succeeded."""
    status, spec = job.get("status") or {}, job["spec"]
    parallelism = spec.get("parallelism", 1)
    needed = min(parallelism, spec["completions"]) if spec.get("completions") is not None else parallelism
    return bool((status.get("succeeded") or 0) + (status.get("ready") or 0) >= needed)


def counters(jobset: Obj, children: Children) -> list[Obj]:
    """Return `status.replicatedJobsStatus`, in descending order of names, like upstream."""
    entries = []
    before = (jobset.get("status") or {}).get("replicatedJobsStatus")
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        name = replicated["name"]
        active = children.active_of(name)
        known = named(before, name) or {}
        entries.append(
            {
                "name": name,
                "ready": sum(is_ready(job) for job in active),
                "succeeded": sum(replicated_job_of(job) == name for job in children.successful),
                "failed": sum(replicated_job_of(job) == name for job in children.failed),
                "active": sum(((job.get("status") or {}).get("active") or 0) > 0 for job in active),
                "suspended": sum(bool(job["spec"].get("suspend")) for job in active),
            }
            | {counter: known[counter] for counter in _COUNTERS if known.get(counter)}
        )
    return sorted(entries, key=lambda entry: entry["name"], reverse=True)


def count_single_restart(status: Obj, job: Obj, replicas: int, *, counted: bool) -> None:
    """Count an individual restart of this Job; its object then belongs to an earlier attempt."""
    entry = named(status["replicatedJobsStatus"], replicated_job_of(job))
    assert entry is not None
    for counter in _COUNTERS if counted else _COUNTERS[:1]:
        numbers = [*(entry.get(counter) or []), *[0] * replicas][:replicas]
        numbers[index_of(job)] += 1
        entry[counter] = numbers


def counted_single_restarts(status: Obj) -> int:
    """Return the number of individual restarts that count towards maxRestarts."""
    entries = status.get("replicatedJobsStatus") or []
    return sum(sum(entry.get("jobRestartsCountTowardsMax") or []) for entry in entries)


def _is_outdated(job: Obj, status: Obj) -> bool:
    if JOB_RESTART_ATTEMPT_LABEL not in labels_of(job):
        return False
    return _label_number(job, JOB_RESTART_ATTEMPT_LABEL) < restarts_of(status, replicated_job_of(job), index_of(job))


def _label_number(job: Obj, label: str) -> int:
    text = labels_of(job).get(label, "")
    number = parse_count(text)
    if number is None:
        raise TerminalError(f"the label {label} of Job {name_of(job)} must be a number, not {text!r}")
    return number
