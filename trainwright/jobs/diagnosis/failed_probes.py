"""Finds containers that their kubelet stopped because a probe failed, from events: the exit code says only that of a stop. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from trainwright.api.objects import Obj
from trainwright.jobs.diagnosis.pod_failure import PodFailure
from trainwright.jobs.state.kubernetes_events import event_time, first_time, involved_object
from trainwright.text.one_line import one_line

_KILLED = re.compile(r"Container (?P<container>\S+) failed (?P<kind>liveness|startup) probe")
_FAILED = re.compile(r"(?P<kind>Liveness|Startup) probe (?P<how>failed|errored.*?): (?P<why>.*)", re.DOTALL)
_SECONDS = 120.0
"""Between the decision of a kubelet and the end of the container: at most its grace period, mostly 30 s."""


def with_failed_probes(failures: Iterable[PodFailure], events: list[Obj]) -> list[PodFailure]:
    """Add the probes that events name to the failures of the containers that were stopped because of them."""
    killings = [(event, match) for event in events if (match := _killing(event)) is not None]
    return [
        replace(failure, failed_probe=_probe(failure.name, match["kind"], events)) if match is not None else failure
        for failure in failures
        for match in [next(_killings_of(failure, killings), None)]
    ]


def failed_probe_of(pod_name: str, container: str, events: list[Obj]) -> str:
    """Return the probe that made a kubelet stop this container last, as in `PodFailure.failed_probe`; empty if none did."""
    for event in reversed(events):
        match = _killing(event)
        if match is not None and (involved_object(event), match["container"]) == (pod_name, container):
            return _probe(pod_name, match["kind"], events)
    return ""


def _killing(event: Obj) -> re.Match[str] | None:
    return _KILLED.match(str(event.get("message") or "")) if event.get("reason") == "Killing" else None


def _killings_of(failure: PodFailure, killings: list[tuple[Obj, re.Match[str]]]) -> Iterator[re.Match[str]]:
    for event, match in killings:
        is_of_container = (involved_object(event), match["container"]) == (failure.name, failure.container)
        if is_of_container and failure.exit_code is not None and failure.reason != "OOMKilled" and _is_before(event, failure):
            yield match


def _is_before(event: Obj, failure: PodFailure) -> bool:
    """Whether the container ended soon after this event, or after one that was counted with it."""
    first, last, finished = first_time(event), event_time(event), failure.finished
    if not (first and last and finished):
        return True
    end = datetime.fromisoformat(finished).timestamp()
    begin, latest = (datetime.fromisoformat(moment).timestamp() for moment in (first, last))
    return begin - 1 <= end <= latest + _SECONDS


def _probe(pod_name: str, kind: str, events: list[Obj]) -> str:
    """Return which probe failed, and why if an event of the pod says it."""
    texts = [
        one_line(match["why"])
        for event in events
        if event.get("reason") == "Unhealthy"
        and involved_object(event) == pod_name
        and (match := _FAILED.match(str(event.get("message") or ""))) is not None
        and match["kind"].lower() == kind
    ]
    why = next(filter(None, reversed(texts)), "")
    return f"its {kind} probe failed{f': {why}' if why else ''}"
