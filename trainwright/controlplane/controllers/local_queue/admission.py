"""Decides which jobs of a queue are admitted, and why others wait. Pure, so decisions do not depend on a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwright.api.quantities import Requests, parse_quantity
from trainwright.controlplane.controllers.local_queue.settings import Queue
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.gangs import add

_NOTHING = parse_quantity(0)


@dataclass(frozen=True)
class QueuedJob:
    """A TrainJob in a queue; `requests` is None until its JobSet exists."""

    key: Key
    priority: int
    created: str
    is_running: bool
    requests: Requests | None


@dataclass(frozen=True)
class AdmissionDecision:
    """Whether a job is admitted, with reason and message for the condition."""

    key: Key
    is_admitted: bool
    reason: str
    message: str


def admission_decisions(queue: Queue, jobs: Iterable[QueuedJob]) -> Iterator[AdmissionDecision]:
    """Yield a decision for each waiting job, by priority, then age. A job that does not fit blocks all jobs behind it.

    A job that exceeds the quota of the queue does not block others, since it can never be admitted.
    """
    jobs = list(jobs)
    used: Requests = {}
    for job in jobs:
        if job.is_running:
            add(used, job.requests or {})
    waiting = sorted((job for job in jobs if not job.is_running), key=lambda job: (-job.priority, job.created, job.key))
    before: QueuedJob | None = None
    for number, job in enumerate(waiting, 1):
        position = f"position {number} of {len(waiting)} in queue {queue.name}"
        if job.requests is None:
            yield AdmissionDecision(job.key, False, "NotBuilt", f"{position}: what its pods ask for is not known yet")
        elif too_much := [name for name in sorted(queue.quota) if job.requests.get(name, _NOTHING) > queue.quota[name]]:
            asked = ", ".join(f"{job.requests[name]} of {name}, the queue has {queue.quota[name]}" for name in too_much)
            yield AdmissionDecision(job.key, False, "ExceedsQuota", f"{position}: it asks for {asked}; it never fits")
        elif before is not None:
            yield AdmissionDecision(job.key, False, "Pending", f"{position}, behind {'/'.join(before.key)}")
        elif shortage := _shortage(queue, used, job.requests):
            yield AdmissionDecision(job.key, False, "Pending", f"{position}: {shortage}")
            before = job
        else:
            add(used, job.requests)
            yield AdmissionDecision(job.key, True, "Admitted", f"admitted by queue {queue.name}")


def _shortage(queue: Queue, used: Requests, requests: Requests) -> str:
    parts = []
    for name, quota in sorted(queue.quota.items()):
        asked, taken = requests.get(name, _NOTHING), used.get(name, _NOTHING)
        if asked > _NOTHING and taken + asked > quota:
            parts.append(f"{taken + asked - quota} more of {name} needed ({asked} asked for, {taken} of {quota} in use)")
    return ", ".join(parts)
