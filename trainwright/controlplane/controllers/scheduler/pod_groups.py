"""PodGroups of the two gang schedulers: when their pods may start, and the status that these schedulers would write. Pure.

A PodGroup of a TrainJob also counts pods that never run concurrently (its initializers), so there the JobSet is used instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trainwright.api.conditions import set_condition
from trainwright.api.objects import Obj, controller_of, copy_of
from trainwright.api.quantities import parse_quantity
from trainwright.materialize.pod_requests import Requests


def gates_pods(group: Obj) -> bool:
    """Whether the scheduling of its pods depends on this group."""
    return (controller_of(group) or {}).get("kind") != "TrainJob"


def problem(group: Obj) -> str:
    """Return why the spec of a group cannot be used, or an empty string: these kinds are stored without validation."""
    spec = group.get("spec")
    if not isinstance(spec, dict):
        return "spec must be an object"
    if not isinstance(spec.get("minMember") or 0, int):
        return "spec.minMember must be an integer"
    if not isinstance(spec.get("minResources") or {}, dict):
        return "spec.minResources must be an object"
    try:
        min_resources(group)
    except ValueError as error:
        return f"spec.minResources: {error}"
    return ""


def min_resources(group: Obj) -> Requests:
    """Return the resources that must be free, or used by its own pods, before any of them starts."""
    return {name: parse_quantity(amount) for name, amount in (group["spec"].get("minResources") or {}).items()}


def min_members(group: Obj) -> int:
    return int(group["spec"].get("minMember") or 0)


def too_few_message(pod_name: str, found: int, group: Obj) -> str:
    """Return the coscheduling plugin's message."""
    return (
        f"0/1 nodes are available: pre-filter pod {pod_name} cannot find enough sibling pods, "
        f"current pods number: {found}, minMember of group: {min_members(group)}."
    )


def status_after(kind: str, group: Obj, pods: Iterable[Obj], why: str, now: str) -> Obj:
    """Return the group's status with these pods; `why` is the reason why pods are pending, or empty."""
    phases = Counter(str((pod.get("status") or {}).get("phase") or "Pending") for pod in pods)
    status = copy_of(group.get("status") or {})
    counts = {name.lower(): phases[name] for name in ("Running", "Succeeded", "Failed")}
    status |= {name: count for name, count in counts.items() if count or name in status}
    if kind == "coscheduling":
        status["phase"] = _coscheduling_phase(group, phases)
    else:
        _volcano(status, group, phases, why, now)
    return status


def _coscheduling_phase(group: Obj, phases: Counter[str]) -> str:
    """Return the phase like the coscheduling PodGroup controller, with the same precedence."""
    needed, total = min_members(group), phases.total()
    running, succeeded, failed = phases["Running"], phases["Succeeded"], phases["Failed"]
    if succeeded and succeeded >= needed:
        return "Finished"
    if total < needed or not total:
        return "Pending"
    if failed and failed + running + succeeded >= needed:
        return "Failed"
    return "Running" if succeeded + running >= needed else "Scheduling"


def _volcano(status: Obj, group: Obj, phases: Counter[str], why: str, now: str) -> None:
    needed, total = min_members(group), phases.total()
    if total and phases["Succeeded"] == total:
        status["phase"] = "Completed"
    elif phases["Running"] + phases["Succeeded"] >= needed and total:
        status["phase"] = "Running"
    elif phases["Running"]:
        status["phase"] = "Unknown"
    else:
        status["phase"] = "Pending" if why or total < needed else "Inqueue"
    if why:
        reason = "NotEnoughPods" if total < needed else "NotEnoughResources"
        set_condition(status, "Unschedulable", True, reason, why, now)
    elif status["phase"] != "Pending":
        set_condition(status, "Scheduled", True, "tasks in gang are ready to be scheduled", "", now)
