"""Finds why pods failed where their status does not tell: which pod made the job fail, which were disrupted, and which failed a
probe. Pure.

When one pod of a Job fails, the Job controller deletes the others, which then end with 143, or with 137 if they ignore SIGTERM. A
pod that fails repeatedly is itself deleted at the back-off limit.

A Job fails only after all its pods have terminated (Kubernetes 1.31 and later). By then a preempted pod and its condition may be
deleted, and the remaining pods show only lost connections: events name it. They also tell of containers that their kubelet stopped
because a probe or a postStart hook failed, where the exit code is only that of a stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from trainwright.api.objects import Obj, is_deleting, name_of, uid_of
from trainwright.jobs.diagnosis.pod_failure import STOPPED_CODES, PodFailure, pod_failure
from trainwright.jobs.state.kubernetes_events import event_time, first_time, involved_object
from trainwright.jobs.state.pod_history import SeenPod, owner_of
from trainwright.jobs.state.pods import Place, index_of, step_of
from trainwright.text.foreign_texts import one_line

_DELETED_POD = re.compile(r"Deleted pod: (\S+)")
_DIRECT, _RESTARTED, _CONSEQUENCE = range(3)
_DISRUPTION_REASONS = {
    "Preempted": "PreemptionByScheduler",
    "TaintManagerEviction": "DeletionByTaintManager",
    "Evicted": "Evicted",
}
"""Event reason to the reason that the pod's DisruptionTarget condition would have."""
_POD_FAILURE_POLICY = re.compile(r"Pod (?:\S+/)?(\S+) has condition DisruptionTarget")
"""In the message of a Job that its podFailurePolicy ended: the only trace of a pod that was evicted through the Eviction API."""
_DELETION_CANCELLED = "Cancelling deletion"
"""The taint manager reports a cancelled deletion with the same event reason."""
_KILLED = re.compile(r"(?:Init c|C)ontainer (?P<container>\S+) failed (?P<kind>liveness|startup) probe")
_HOOK = "FailedPostStartHook"
"""The message of the Killing event, which names the container in its field path only, and the reason of the event before."""
_NO_CAUSE = "PostStartHook failed"
"""All that a kubelet says of a hook since Kubernetes 1.28."""
_CONTAINER = re.compile(r"spec\.(?:initC|c)ontainers\{(?P<container>[^}]+)\}")
_FAILED = re.compile(r"(?P<kind>Liveness|Startup) probe (?P<how>failed|errored.*?): (?P<why>.*)", re.DOTALL)
_SECONDS = 120.0
"""Between the decision of a kubelet and the end of the container: at most its grace period, mostly 30 s."""


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
        if not failure.deletion_requested or failure.disruption:  # not deleted, or for a reason that is known
            return None
        if failure.name in (self.pods or ()) or failure.owner in self.ended_owners:  # its Job says so, or is itself gone
            return True
        if not self.failing_since:  # no Job failed that would have deleted its pods
            return None
        late = (datetime.fromisoformat(failure.deletion_requested) - datetime.fromisoformat(self.failing_since)).total_seconds()
        if late > 0 or (late == 0 and not self.has_events):  # deleted after a Job had failed: by its controller
            return True
        return None if late >= -1 else False


def deletions_in(events: Iterable[Obj] | None, failing_since: str, ended_owners: Iterable[str] = ()) -> Deletions:
    """Return the deletions that events of Jobs report (reason SuccessfulDelete)."""
    if events is None:  # they may not be read: unknown, unlike an empty list
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


def _rank(failure: PodFailure, deletions: Deletions) -> int:
    """A direct failure comes before a container that runs again after failing, and before what a controller stopped."""
    if failure.disruption or failure.failed_probe:  # its cause is known
        return _DIRECT
    if not failure.deletion_requested and failure.exit_code == STOPPED_CODES[0]:
        return _CONSEQUENCE
    if deletions.by_controller(failure) and not failure.is_own_failure:
        return _CONSEQUENCE
    return _RESTARTED if failure.runs_again else _DIRECT


def disrupted_pods(trainjob: Obj, events: list[Obj], pods: list[Obj]) -> Iterator[PodFailure]:
    """Yield the disrupted pods of the last attempt that no longer exist. `events` are the job's, sorted by time."""
    since = min(map(_created, pods), default="")
    for name, event in _disruptions(events).items():
        match = re.fullmatch(rf"{re.escape(name_of(trainjob))}-(.+)-\d+-(\d+)-[a-z0-9]+", name)
        if match is None or event_time(event) < since:  # of another job, or of an earlier attempt
            continue
        step, index = match[1], int(match[2])
        if any(name_of(pod) == name or _replaces(pod, step, index, event_time(event)) for pod in pods):
            continue
        yield PodFailure(
            name=name,
            step=step,
            index=index,
            message=str(event.get("message") or ""),
            finished=event_time(event),
            disruption=_disruption_of(event),
            is_gone=True,
        )


def _created(pod: Obj) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def _disruptions(events: list[Obj]) -> dict[str, Obj]:
    """Return the last event about a disruption of each pod, by the pod's name."""
    found: dict[str, Obj] = {}
    for event in events:
        message = str(event.get("message") or "")
        if event.get("reason") in _DISRUPTION_REASONS and not message.startswith(_DELETION_CANCELLED):
            found[involved_object(event)] = event
        elif event.get("reason") == "PodFailurePolicy" and (match := _POD_FAILURE_POLICY.search(message)):
            found.setdefault(match[1], event)
        elif event.get("reason") in _DISRUPTION_REASONS:
            found.pop(involved_object(event), None)
    return found


def _replaces(pod: Obj, step: str, index: int, disruption: str) -> bool:
    """Whether the pod replaced the one that was disrupted at `disruption`."""
    return (step_of(pod), index_of(pod)) == (step, index) and _created(pod) > disruption


def _disruption_of(event: Obj) -> str:
    return _DISRUPTION_REASONS.get(str(event["reason"]), "DisruptionTarget")


def with_told_disruptions(failures: Iterable[PodFailure], events: list[Obj]) -> list[PodFailure]:
    """Add the disruptions that events report to failures of pods whose condition was not seen."""
    told = _disruptions(events)
    return [
        replace(failure, disruption=_disruption_of(told[failure.name]), disrupted=event_time(told[failure.name]))
        if failure.name in told and not failure.disruption
        else failure
        for failure in failures
    ]


def with_failed_probes(failures: Iterable[PodFailure], events: list[Obj]) -> list[PodFailure]:
    """Add the probes and hooks that events name to the failures of the containers that were stopped because of them."""
    killings = list(_killings(events))
    return [
        replace(failure, failed_probe=_cause(failure.name, killing, events)) if killing is not None else failure
        for failure in failures
        for killing in [next((each for each in killings if _has_ended(failure, each)), None)]
    ]


def _killings(events: Iterable[Obj]) -> Iterator[_Killing]:
    for event in events:
        message = str(event.get("message") or "")
        if event.get("reason") != "Killing":
            continue
        if (probe := _KILLED.match(message)) is not None:
            yield _Killing(event, probe["container"], probe["kind"])
        elif message == _HOOK:
            place = _CONTAINER.fullmatch(str((event.get("involvedObject") or {}).get("fieldPath") or ""))
            yield _Killing(event, place["container"] if place is not None else "", "postStart")


class _Killing(NamedTuple):
    """An event that a kubelet stops a container, and why: `liveness`, `startup` or `postStart`."""

    event: Obj
    container: str
    kind: str


def _cause(pod_name: str, killing: _Killing, events: list[Obj]) -> str:
    """Return which probe or hook failed, and why if an event of the pod says it."""
    own = [event for event in events if involved_object(event) == pod_name]
    if killing.kind == "postStart":
        texts = [one_line(event.get("message")) for event in own if event.get("reason") == _HOOK]
        why = next((text for text in reversed(texts) if text != _NO_CAUSE), "")
        return f"its postStart hook failed{f': {why}' if why else ''}"
    found = (_FAILED.match(str(event.get("message") or "")) for event in own if event.get("reason") == "Unhealthy")
    reasons = [one_line(match["why"]) for match in found if match is not None and match["kind"].lower() == killing.kind]
    why = next(filter(None, reversed(reasons)), "")
    return f"its {killing.kind} probe failed{f': {why}' if why else ''}"


def _has_ended(failure: PodFailure, killing: _Killing) -> bool:
    """Whether the container ended because of this."""
    is_of_container = (involved_object(killing.event), killing.container) == (failure.name, failure.container)
    has_ended = failure.exit_code is not None and failure.reason != "OOMKilled"
    return is_of_container and has_ended and _is_before(killing.event, failure)


def _is_before(event: Obj, failure: PodFailure) -> bool:
    """Whether the container ended soon after this event, or after one that was counted with it."""
    first, last, finished = first_time(event), event_time(event), failure.finished
    if not (first and last and finished):  # without times, the container and the reason decide
        return True
    end = datetime.fromisoformat(finished).timestamp()
    begin, latest = (datetime.fromisoformat(moment).timestamp() for moment in (first, last))
    return begin - 1 <= end <= latest + _SECONDS


def failed_probe_of(pod_name: str, container: str, events: list[Obj]) -> str:
    """Return what made a kubelet stop this container last, as in `PodFailure.failed_probe`; empty if none did."""
    found = [each for each in _killings(events) if (involved_object(each.event), each.container) == (pod_name, container)]
    return _cause(pod_name, found[-1], events) if found else ""
