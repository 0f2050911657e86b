"""Tells the pod that made a job fail from those that were stopped because of it. Pure.

When one pod of a Job fails, the Job controller deletes the others, which then end with 143, or with 137 if they ignore SIGTERM. A
pod that fails repeatedly is itself deleted at the back-off limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj
from trainwright.jobs.diagnosis.pod_failure import STOPPED_CODES, PodFailure, pod_failure
from trainwright.jobs.state.pod_history import SeenPod
from trainwright.jobs.state.pods import Place

_DELETED_POD = re.compile(r"Deleted pod: (\S+)")


@dataclass(frozen=True)
class Deletions:
    """What is known of deletions by controllers: the pods named in events (None: unreadable), and when the first Job began to fail."""

    pods: frozenset[str] | None = None
    failing_since: str = ""

    def by_controller(self, failure: PodFailure) -> bool:
        """Whether a controller requested the deletion of this pod."""
        if not failure.deletion_requested or failure.disruption:
            return False
        if self.pods is not None and (failure.name in self.pods or not self.failing_since):
            return failure.name in self.pods
        if self.pods:  # the Job controller names each pod that it deletes; other controllers act after the failure
            return failure.deletion_requested > self.failing_since
        return bool(self.failing_since) and failure.deletion_requested >= self.failing_since


def deletions_in(events: Iterable[Obj] | None, failing_since: str) -> Deletions:
    """Return the deletions that events of Jobs report (reason SuccessfulDelete)."""
    if events is None:
        return Deletions(None, failing_since)
    told = (_DELETED_POD.match(str(e.get("message") or "")) for e in events if e.get("reason") == "SuccessfulDelete")
    return Deletions(frozenset(match[1] for match in told if match), failing_since)


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
    return [replace(failure, is_consequence=rank == _CONSEQUENCE) for rank, failure in ranked]


_DIRECT, _RESTARTED, _CONSEQUENCE = range(3)


def _rank(failure: PodFailure, deletions: Deletions) -> int:
    """A direct failure comes before a container that runs again after failing, and before what a controller stopped."""
    if failure.disruption:
        return _DIRECT
    if not failure.deletion_requested and failure.exit_code == STOPPED_CODES[0]:
        return _CONSEQUENCE
    if deletions.by_controller(failure) and not failure.is_own_failure:
        return _CONSEQUENCE
    return _RESTARTED if failure.runs_again else _DIRECT
