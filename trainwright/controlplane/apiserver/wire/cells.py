"""The cells of Tables that take more than a field: pods (ready containers, status, restarts) and durations, as kubectl shows them.

Pods follow kube-apiserver's printPod, so that users see the familiar words. Durations are `45s`, `3m20s`, `26h`, `12d`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trainwright.api.objects import Obj, is_deleting
from trainwright.api.times import parse_time

NONE = "<none>"
UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def pod_cells(pod: Obj, now: datetime) -> list[object]:
    """Ready, Status, Restarts; then IP, Node, Nominated Node, Readiness Gates, which follow the Age column."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    mains = status.get("containerStatuses") or []
    sidecars = [entry for entry in status.get("initContainerStatuses") or [] if _is_sidecar(spec, entry)]
    counted = [*mains, *sidecars]
    total = len(spec.get("containers") or []) + sum(_restarts_always(container) for container in spec.get("initContainers") or [])
    ready = sum(_is_ready(entry) for entry in mains) + sum(bool(entry.get("ready")) for entry in sidecars)
    waiting = _init_reason(spec, status)
    restarting = status.get("initContainerStatuses") or [] if waiting else counted
    restarts = sum(int(entry.get("restartCount") or 0) for entry in restarting)
    ended = max(_last_finish_times(restarting), default=None)
    ago = f" ({human_duration((now - ended).total_seconds())} ago)" if restarts and ended else ""
    gates = spec.get("readinessGates") or []
    true = {entry.get("type") for entry in status.get("conditions") or [] if entry.get("status") == "True"}
    return [
        f"{ready}/{total}",
        _reason(pod, waiting),
        f"{restarts}{ago}",
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}" if gates else NONE,
    ]


def _is_sidecar(spec: Obj, entry: Obj) -> bool:
    return any(
        _restarts_always(container) and container.get("name") == entry.get("name")
        for container in spec.get("initContainers") or []
    )


def _restarts_always(container: Obj) -> bool:
    return container.get("restartPolicy") == "Always"


def _is_ready(entry: Obj) -> bool:
    return bool(entry.get("ready")) and "running" in (entry.get("state") or {})


def _init_reason(spec: Obj, status: Obj) -> str | None:
    """The status of the init containers; None once all are done."""
    containers = {container["name"]: container for container in spec.get("initContainers") or []}
    for index, entry in enumerate(status.get("initContainerStatuses") or []):
        state = entry.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if _restarts_always(containers.get(entry.get("name"), {})) and entry.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_termination_reason(terminated)}"
        reason = (state.get("waiting") or {}).get("reason")
        return f"Init:{reason}" if reason and reason != "PodInitializing" else f"Init:{index}/{len(containers)}"
    return None


def _termination_reason(terminated: Obj) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _last_finish_times(entries: list[Obj]) -> Iterator[datetime]:
    for entry in entries:
        finished = ((entry.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        if finished:
            yield parse_time(finished)


def _reason(pod: Obj, waiting: str | None) -> str:
    """The Status column."""
    status = pod.get("status") or {}
    if is_deleting(pod):
        return (
            "Unknown"
            if status.get("reason") == "NodeLost"
            else "Terminating"
            if status.get("phase") not in ("Succeeded", "Failed")
            else _status_reason(status)
        )
    if waiting:
        return waiting
    return _status_reason(status)


def _status_reason(status: Obj) -> str:
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    for entry in status.get("conditions") or []:
        if entry.get("type") == "PodScheduled" and entry.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    running = False
    for entry in reversed(status.get("containerStatuses") or []):
        state = entry.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = str(state["waiting"]["reason"])
        elif "terminated" in state:
            reason = _termination_reason(state["terminated"])
        elif entry.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        ready = any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in status.get("conditions") or [])
        return "Running" if ready else "NotReady"
    return reason


def human_duration(seconds: float) -> str:
    """A duration in at most two units, following HumanDuration of k8s.io/apimachinery."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    for below, large, small in (
        (2 * _MINUTE, 1, 0),
        (10 * _MINUTE, _MINUTE, 1),
        (3 * _HOUR, _MINUTE, 0),
        (8 * _HOUR, _HOUR, _MINUTE),
        (2 * _DAY, _HOUR, 0),
        (8 * _DAY, _DAY, _HOUR),
        (2 * _YEAR, _DAY, 0),
        (8 * _YEAR, _YEAR, _DAY),
    ):
        if whole < below:
            return _in_units(whole, large, small)
    return f"{whole // _YEAR}y"


def _in_units(seconds: int, large: int, small: int) -> str:
    letters = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
    text = f"{seconds // large}{letters[large]}"
    rest = seconds % large // small if small else 0
    return f"{text}{rest}{letters[small]}" if rest else text


def age(since: object, now: datetime) -> str:
    """The time since an RFC 3339 timestamp, or `<unknown>` if it cannot be parsed."""
    try:
        return human_duration((now - parse_time(str(since))).total_seconds())
    except ValueError:
        return UNKNOWN
