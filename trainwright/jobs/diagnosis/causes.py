"""Tells the pod that made a job fail from those that were stopped because of it. Pure.

When one pod of a Job fails, the Job controller deletes the others, which then end with 143, or with 137 if they ignore SIGTERM. A
pod that fails repeatedly is itself deleted at the back-off limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from trainwright.api.objects import Obj, is_deleting, uid_of
from trainwright.jobs.diagnosis.pod_failure import STOPPED_CODES, PodFailure, pod_failure
from trainwright.jobs.state.pod_history import SeenPod, owner_of
from trainwright.jobs.state.pods import Place

_DELETED_POD = re.compile(r"Deleted pod: (\S+)")


@dataclass(frozen=True)
class Deletions:
    """What is known of deletions by controllers: owners that have ended, pods named in events, and when the job began to fail.

    The event of a deletion may come after the pod is gone, and a Job deletes pods a moment before it says that it fails: within a
    second of that only the event decides.
    """

    pods: frozenset[str] | None = None
    """Pods that events name (reason SuccessfulDelete); None if events cannot be read."""
    failing_since: str = ""
    """When the first Job, or the TrainJob at its deadline, began to fail, as an RFC 3339 time."""
    ended_owners: frozenset[str] = frozenset()
    """UIDs of Jobs that are gone, being deleted or suspended: their pods are deleted because of that, without an event."""
    has_events: bool = False
    """Whether the job still has events: after an hour they expire."""

    def by_controller(self, failure: PodFailure) -> bool:
        """Whether a controller requested the deletion of this pod, as far as is known."""
        return self._verdict(failure) is True

    def by_others(self, failure: PodFailure) -> bool:
        """Whether somebody else did: no event of its Job names the pod, although others could be read."""
        return self._verdict(failure) is False or (self.is_unclear(failure) and bool(self.failing_since) and self.has_events)

    def is_unclear(self, failure: PodFailure) -> bool:
        """Whether an event that may still come would decide."""
        return bool(failure.deletion_requested) and not failure.disruption and self._verdict(failure) is None

    def _verdict(self, failure: PodFailure) -> bool | None:
        if not failure.deletion_requested or failure.disruption:
            return None
        if failure.name in (self.pods or ()) or failure.owner in self.ended_owners:
            return True
        if not self.failing_since:
            return None
        late = (datetime.fromisoformat(failure.deletion_requested) - datetime.fromisoformat(self.failing_since)).total_seconds()
        if late > 0 or (late == 0 and not self.has_events):
            return True
        return None if late >= -1 else False


def deletions_in(events: Iterable[Obj] | None, failing_since: str, ended_owners: Iterable[str] = ()) -> Deletions:
    """Return the deletions that events of Jobs report (reason SuccessfulDelete)."""
    if events is None:
        return Deletions(None, failing_since, frozenset(ended_owners))
    seen = list(events)
    told = (_DELETED_POD.match(str(e.get("message") or "")) for e in seen if e.get("reason") == "SuccessfulDelete")
    return Deletions(frozenset(match[1] for match in told if match), failing_since, frozenset(ended_owners), bool(seen))


def ended_owners(pods: Iterable[SeenPod], jobs: Iterable[Obj] | None) -> frozenset[str]:
    """Return the UIDs of the pods' Jobs that are gone, being deleted or suspended; none if the Jobs cannot be read."""
    if jobs is None:
        return frozenset()
    running = {uid_of(job) for job in jobs if not (is_deleting(job) or (job.get("spec") or {}).get("suspend"))}
    return frozenset(owner for seen in pods if (owner := owner_of(seen.pod)) and owner not in running)


def split_by_attempt(pods: list[SeenPod]) -> tuple[list[SeenPod], list[SeenPod]]:
    """Return the pods of the last attempt, and those that were replaced: by a restart of the JobSet, or by their Job."""
    latest: dict[tuple[str, int], int] = {}
    newest: dict[Place, str] = {}
    for seen in pods:
        step, job, _ = seen.place
        latest[step, job] = max(latest.get((step, job), 0), seen.restart_attempt)
    for seen in pods:
        newest[seen.place] = max(newest.get(seen.place, ""), f"{seen.restart_attempt:09d} {seen.created}")
    current: list[SeenPod] = []
    replaced: list[SeenPod] = []
    for seen in pods:
        is_latest = seen.restart_attempt == latest[seen.place[:2]]
        is_newest = f"{seen.restart_attempt:09d} {seen.created}" == newest[seen.place]
        (current if is_latest and is_newest else replaced).append(seen)
    return current, replaced


def failures_of(pods: Iterable[SeenPod], deletions: Deletions) -> list[PodFailure]:
    """Return the failures of these pods: the cause first, then other failures by time, then consequences."""
    return ordered((failure for seen in pods if (failure := pod_failure(seen.pod, seen)) is not None), deletions)


def ordered(failures: Iterable[PodFailure], deletions: Deletions) -> list[PodFailure]:
    """Return failures with consequences marked: the cause first, then other failures by time, then consequences."""
    ranked = [(_rank(failure, deletions), failure) for failure in failures]
    ranked.sort(key=lambda entry: (entry[0], entry[1].began, entry[1].finished))
    return [
        replace(failure, is_consequence=rank == _CONSEQUENCE, deleted_by_others=deletions.by_others(failure))
        for rank, failure in ranked
    ]


_DIRECT, _RESTARTED, _CONSEQUENCE = range(3)


def _rank(failure: PodFailure, deletions: Deletions) -> int:
    """A direct failure comes before a container that runs again after failing, and before what a controller stopped."""
    if failure.disruption or failure.failed_probe:
        return _DIRECT
    if not failure.deletion_requested and failure.exit_code == STOPPED_CODES[0]:
        return _CONSEQUENCE
    if deletions.by_controller(failure) and not failure.is_own_failure:
        return _CONSEQUENCE
    return _RESTARTED if failure.runs_again else _DIRECT
