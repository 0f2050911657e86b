"""Who of a queue may start, and what the others are told. Pure: the same jobs get the same answers, whoever asks after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainwright.api.quantities import parse_quantity
from trainwright.controlplane.controllers.local_queue.settings import Queue
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler.room import add
from trainwright.materialize.pod_requests import Requests

_NOTHING = parse_quantity(0)


@dataclass(frozen=True)
class Job:
    """A TrainJob as its queue sees it; `requests` None until its pods are known."""

    key: Key
    priority: int
    created: str
    running: bool
    requests: Requests | None


@dataclass(frozen=True)
class Verdict:
    """`reason` and `message` say why one waits, or that it may start."""

    key: Key
    admitted: bool
    reason: str
    message: str


def verdicts(queue: Queue, jobs: Iterable[Job]) -> Iterator[Verdict]:
    """One for each job that waits, by priority, then age. The first that has to wait lets nobody pass.

    Only one that asks for more than the queue ever has is passed by: it would hold up the others for ever.
    """
    jobs = list(jobs)
    used: Requests = {}
    for job in jobs:
        if job.running:
            add(used, job.requests or {})
    line = sorted((job for job in jobs if not job.running), key=lambda job: (-job.priority, job.created, job.key))
    before: Job | None = None
    for number, job in enumerate(line, 1):
        place = f"position {number} of {len(line)} in queue {queue.name}"
        if job.requests is None:
            yield Verdict(job.key, False, "NotBuilt", f"{place}: what its pods ask for is not known yet")
        elif too_much := [name for name in sorted(queue.quota) if job.requests.get(name, _NOTHING) > queue.quota[name]]:
            asked = ", ".join(f"{job.requests[name]} of {name}, the queue has {queue.quota[name]}" for name in too_much)
            yield Verdict(job.key, False, "ExceedsQuota", f"{place}: it asks for {asked}; it never fits")
        elif before is not None:
            yield Verdict(job.key, False, "Pending", f"{place}, behind {'/'.join(before.key)}")
        elif lacking := _lacking(queue, used, job.requests):
            yield Verdict(job.key, False, "Pending", f"{place}: {lacking}")
            before = job
        else:
            add(used, job.requests)
            yield Verdict(job.key, True, "Admitted", f"admitted by queue {queue.name}")


def _lacking(queue: Queue, used: Requests, requests: Requests) -> str:
    parts = []
    for name, quota in sorted(queue.quota.items()):
        asked, taken = requests.get(name, _NOTHING), used.get(name, _NOTHING)
        if asked > _NOTHING and taken + asked > quota:
            parts.append(f"{taken + asked - quota} more of {name} needed ({asked} asked for, {taken} of {quota} in use)")
    return ", ".join(parts)
