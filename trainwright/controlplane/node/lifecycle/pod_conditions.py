"""The conditions of a pod: whether its sandbox, its init containers and its containers are ready. Pure.

Like the kubelet's, and unlike those of other kinds, they have no reason and no message where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.container_status import is_ready
from trainwright.controlplane.node.lifecycle.sidecars import has_initialized


def set_pod_conditions(
    pod: Obj, status: Obj, states: Sequence[ContainerState], outcome: str, moment: str, *, has_sandbox: bool
) -> None:
    """Set the conditions in `status` at the time `moment`. `outcome` is the phase in which the pod will end, once that is certain."""

    def put(kind: str, value: bool, reason: str = "", message: str = "") -> None:
        put_condition(status, kind, value, reason, message, moment)

    put("PodReadyToStartContainers", has_sandbox)
    incomplete = [state.name for state in states if not _is_initialized(state)]
    if outcome == "Succeeded":
        put("Initialized", True, "PodCompleted")
    elif incomplete and not has_initialized(states):
        put("Initialized", False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    else:
        put("Initialized", True)
    unready = [state.name for state in states if state.role is not Role.INIT and not is_ready(state)]
    if outcome:
        reason, message = ("PodCompleted" if outcome == "Succeeded" else "PodFailed"), ""
    elif unready:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    else:
        reason, message = "", ""
    put("ContainersReady", not reason, reason, message)
    if not reason and (closed := _closed_gates(pod, status)):
        reason, message = "ReadinessGatesNotReady", ", ".join(closed)
    put("Ready", not reason, reason, message)
    if condition({"status": status}, "PodScheduled") is None:
        put("PodScheduled", True)


def _is_initialized(state: ContainerState) -> bool:
    return {Role.MAIN: True, Role.SIDECAR: state.has_started, Role.INIT: is_ready(state)}[state.role]


def _closed_gates(pod: Obj, status: Obj) -> list[str]:
    """What keeps the pod from being ready although its containers are, in the kubelet's words."""
    closed = []
    for gate in pod["spec"].get("readinessGates") or []:
        kind = gate["conditionType"]
        found = condition({"status": status}, kind)
        if found is None:
            closed.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found.get("status") != "True":
            closed.append(f'the status of pod readiness gate "{kind}" is not "True", but {found.get("status")}')
    return closed


def put_condition(status: Obj, kind: str, value: bool, reason: str, message: str, moment: str) -> None:
    """Set one condition; the transition time changes only with the value."""
    conditions = status.setdefault("conditions", [])
    text = "True" if value else "False"
    found = next((entry for entry in conditions if entry.get("type") == kind), None)
    if found is None:
        found = {"type": kind, "status": text, "lastProbeTime": None, "lastTransitionTime": moment}
        conditions.append(found)
    elif found.get("status") != text:
        found |= {"status": text, "lastTransitionTime": moment}
    for key, words in (("reason", reason), ("message", message)):
        if words:
            found[key] = words
        else:
            found.pop(key, None)
