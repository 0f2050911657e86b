"""Finds containers that their kubelet stopped because a probe or a postStart hook failed, from events. Pure.

The exit code is only that of a stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from trainwright.api.objects import Obj
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.state.kubernetes_events import event_time, first_time, involved_object
from trainwright.text.foreign_texts import one_line

_KILLED = re.compile(r"(?:Init c|C)ontainer (?P<container>\S+) failed (?P<kind>liveness|startup) probe")
_HOOK = "FailedPostStartHook"
"""The message of the Killing event, which names the container in its field path only, and the reason of the event before."""
_NO_CAUSE = "PostStartHook failed"
"""All that a kubelet says of a hook since Kubernetes 1.28."""
_CONTAINER = re.compile(r"spec\.(?:initC|c)ontainers\{(?P<container>[^}]+)\}")
_FAILED = re.compile(r"(?P<kind>Liveness|Startup) probe (?P<how>failed|errored.*?): (?P<why>.*)", re.DOTALL)
_SECONDS = 120.0
"""Between the decision of a kubelet and the end of the container: at most its grace period, mostly 30 s."""


class _Killing(NamedTuple):
    """An event that a kubelet stops a container, and why: `liveness`, `startup` or `postStart`."""

    event: Obj
    container: str
    kind: str


def with_failed_probes(failures: Iterable[PodFailure], events: list[Obj]) -> list[PodFailure]:
    """Add the probes and hooks that events name to the failures of the containers that were stopped because of them."""
    killings = list(_killings(events))
    return [
        replace(failure, failed_probe=_cause(failure.name, killing, events)) if killing is not None else failure
        for failure in failures
        for killing in [next((each for each in killings if _has_ended(failure, each)), None)]
    ]


def failed_probe_of(pod_name: str, container: str, events: list[Obj]) -> str:
    """Return what made a kubelet stop this container last, as in `PodFailure.failed_probe`; empty if none did."""
    found = [each for each in _killings(events) if (involved_object(each.event), each.container) == (pod_name, container)]
    return _cause(pod_name, found[-1], events) if found else ""


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


def _has_ended(failure: PodFailure, killing: _Killing) -> bool:
    """Whether the container ended because of this."""
    is_of_container = (involved_object(killing.event), killing.container) == (failure.name, failure.container)
    has_ended = failure.exit_code is not None and failure.reason != "OOMKilled"
    return is_of_container and has_ended and _is_before(killing.event, failure)


def _is_before(event: Obj, failure: PodFailure) -> bool:
    """Whether the container ended soon after this event, or after one that was counted with it."""
    first, last, finished = first_time(event), event_time(event), failure.finished
    if not (first and last and finished):
        return True
    end = datetime.fromisoformat(finished).timestamp()
    begin, latest = (datetime.fromisoformat(moment).timestamp() for moment in (first, last))
    return begin - 1 <= end <= latest + _SECONDS


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
