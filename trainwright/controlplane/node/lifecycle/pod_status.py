"""Computes a pod's status from its containers' states, like a kubelet: phase, conditions, container statuses. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.objects import Obj, copy_of
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.container_status import container_status, timestamp, unknown_status
from trainwright.controlplane.node.lifecycle.ending import Ending, is_terminal
from trainwright.controlplane.node.lifecycle.pod_conditions import set_pod_conditions
from trainwright.controlplane.node.lifecycle.restart_rules import has_failed
from trainwright.controlplane.node.lifecycle.termination_message import limit_messages

NODE_ADDRESS = "127.0.0.1"
Shown = tuple[ContainerState, Obj]
"""A container and its status."""


def pod_status(pod: Obj, states: Sequence[ContainerState], ending: Ending | None, now: float, address: str = "") -> Obj:
    """Return the pod's status. Unchanged conditions keep their transition times.

    `address` is that of the pod, empty until its volumes are there. `now` is in seconds since the epoch. The phase becomes
    terminal when the last container has ended, not before: controllers replace a pod then. It does not change any more.
    """
    status = copy_of(pod.get("status") or {})
    moment = timestamp(now)
    is_over = ending is not None and not any(state.is_alive for state in states)
    if not is_terminal(pod):
        status["phase"] = final_phase(states, ending) if ending is not None and is_over else phase(states)
    status.setdefault("startTime", moment)
    status |= {"hostIP": NODE_ADDRESS, "hostIPs": [{"ip": NODE_ADDRESS}]}
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if ending is not None and ending.reason and is_over:
        status |= {"reason": ending.reason, "message": ending.message}
    shown = [(state, container_status(pod, state, ending, now)) for state in states]
    if is_over:
        shown = _final_statuses(shown)
    init = [found for state, found in shown if state.role is not Role.MAIN]
    mains = [found for state, found in shown if state.role is Role.MAIN]
    limit_messages([*init, *mains])
    status["containerStatuses"] = sorted(mains, key=lambda found: str(found["name"]))
    if init:
        status["initContainerStatuses"] = init
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    outcome = str(status["phase"]) if is_terminal(pod) else _outcome(pod, states, ending)
    set_pod_conditions(pod, status, states, outcome, moment, has_sandbox=bool(address) and not is_over)
    return status


def phase(states: Sequence[ContainerState]) -> str:
    """Return the phase of a pod that has not stopped: Running once all its main containers were started.

    Source: getPhase of the kubelet. A container that waits for its restart after it has run counts as stopped, not as waiting.
    """
    mains = [state for state in states if state.role is Role.MAIN]
    return "Pending" if any(state.run is None or _is_being_started(state) for state in mains) else "Running"


def final_phase(states: Sequence[ContainerState], ending: Ending) -> str:
    """Return the phase of a pod that has stopped. One that was deleted has succeeded if all its main containers have."""
    mains = [state for state in states if state.role is Role.MAIN]
    has_succeeded = all(state.ended is not None and state.ended.code == 0 for state in mains)
    return "Succeeded" if has_succeeded and not ending.reason else "Failed"


def _has_failed_to_initialize(pod: Obj, states: Sequence[ContainerState]) -> bool:
    return any(state.role is Role.INIT and has_failed(pod, state) for state in states)


def _is_being_started(state: ContainerState) -> bool:
    """The first run only: one that is restarted has a last state."""
    return state.is_alive and not state.is_running and state.restarts == 0


def _outcome(pod: Obj, states: Sequence[ContainerState], ending: Ending | None) -> str:
    """Return the phase that the pod will have for sure, or an empty string: conditions tell it before the phase does."""
    if ending is None:
        return ""
    if ending.reason or _has_failed_to_initialize(pod, states):
        return "Failed"
    return "" if any(state.is_alive for state in states) else final_phase(states, ending)


def _final_statuses(shown: Sequence[Shown]) -> list[Shown]:
    """A container that was not seen to end has ended with its pod, unless its turn to start never came.

    The first init container always had its turn. Source: TerminatePod of the kubelet's status manager.
    """
    init = [(state, found) for state, found in shown if state.role is not Role.MAIN]
    mains = [(state, found) for state, found in shown if state.role is Role.MAIN]
    reached = max((position for position, (_, found) in enumerate(init) if _was_started(found)), default=0)
    had_turn = [*init[: reached + 1], *(mains if _mains_had_turn(init, mains) else [])]
    lost = {state.name for state, found in had_turn if "terminated" not in found["state"]}
    return [(state, unknown_status(found) if state.name in lost else found) for state, found in shown]


def _mains_had_turn(init: Sequence[Shown], mains: Sequence[Shown]) -> bool:
    if not init or any(_was_started(found) for _, found in mains):
        return True
    last, found = init[-1]
    return last.role is Role.INIT and any(
        (found[key].get("terminated") or {}).get("exitCode") == 0 for key in ("state", "lastState")
    )


def _was_started(found: Obj) -> bool:
    return "waiting" not in found["state"] or bool(found["lastState"])
