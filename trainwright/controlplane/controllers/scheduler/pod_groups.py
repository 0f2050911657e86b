"""PodGroups of the two gang schedulers: when their pods may start, and the status that those schedulers would write. Pure.

A PodGroup that belongs to a TrainJob counts pods which never run at the same time (its initializers): there the JobSet decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trainwright.api.conditions import set_condition
from trainwright.api.objects import Obj, controller_of, copy_of, name_of
from trainwright.api.quantities import parse_quantity
from trainwright.materialize.pod_requests import Requests


def decides(group: Obj) -> bool:
    """Whether the group holds its pods back."""
    return (controller_of(group) or {}).get("kind") != "TrainJob"


def least(group: Obj) -> Requests:
    """What has to be free, or taken by its own pods, before any of them starts."""
    return {name: parse_quantity(amount) for name, amount in (group["spec"].get("minResources") or {}).items()}


def least_members(group: Obj) -> int:
    return int(group["spec"].get("minMember") or 0)


def too_few(pod_name: str, found: int, group: Obj) -> str:
    """The coscheduling plugin's sentence."""
    return (
        f"0/1 nodes are available: pre-filter pod {pod_name} cannot find enough sibling pods, "
        f"current pods number: {found}, minMember of group: {least_members(group)}."
    )


def status_after(kind: str, group: Obj, pods: Iterable[Obj], why: str, now: str) -> Obj:
    """The group's status with these pods; `why` its pods wait, empty when they do not."""
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
    """As its PodGroup controller has it, in its order."""
    wanted, there = least_members(group), phases.total()
    running, succeeded, failed = phases["Running"], phases["Succeeded"], phases["Failed"]
    if succeeded and succeeded >= wanted:
        return "Finished"
    if there < wanted or not there:
        return "Pending"
    if failed and failed + running + succeeded >= wanted:
        return "Failed"
    return "Running" if succeeded + running >= wanted else "Scheduling"


def _volcano(status: Obj, group: Obj, phases: Counter[str], why: str, now: str) -> None:
    wanted, there = least_members(group), phases.total()
    if there and phases["Succeeded"] == there:
        status["phase"] = "Completed"
    elif phases["Running"] + phases["Succeeded"] >= wanted and there:
        status["phase"] = "Running"
    elif phases["Running"]:
        status["phase"] = "Unknown"
    else:
        status["phase"] = "Pending" if why or there < wanted else "Inqueue"
    if why:
        reason = "NotEnoughPods" if there < wanted else "NotEnoughResources"
        set_condition(status, "Unschedulable", True, reason, why, now)
    elif status["phase"] != "Pending":
        set_condition(status, "Scheduled", True, "tasks in gang are ready to be scheduled", "", now)


def known_as(group: tuple[str, str, str], found: Obj | None) -> str:
    """How a message names it."""
    return f"PodGroup {group[1]}/{name_of(found) if found else group[2]}"
