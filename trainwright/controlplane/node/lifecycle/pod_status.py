"""Computes a pod's status from its containers' states, like a kubelet: phase, conditions, container statuses. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.objects import Obj, copy_of
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.container_status import container_status, timestamp, unknown_status
from trainwright.controlplane.node.lifecycle.ending import Ending
from trainwright.controlplane.node.lifecycle.pod_conditions import set_pod_conditions
from trainwright.controlplane.node.lifecycle.restart_rules import has_failed, is_finished
from trainwright.controlplane.node.lifecycle.sidecars import has_initialized
from trainwright.controlplane.node.lifecycle.termination_message import limit_messages

NODE_ADDRESS = "127.0.0.1"
TERMINAL = ("Succeeded", "Failed")


def pod_status(pod: Obj, states: Sequence[ContainerState], ending: Ending | None, now: float, address: str = "") -> Obj:
    """Return the pod's status. Unchanged conditions keep their transition times.

    `address` is that of the pod, empty until its volumes are there. `now` is in seconds since the epoch. The phase becomes
    terminal when the last container has ended, not before: controllers replace a pod then.
    """
    status = copy_of(pod.get("status") or {})
    moment = timestamp(now)
    is_over = ending is not None and not any(state.is_alive for state in states)
    status["phase"] = final_phase(states, ending) if ending is not None and is_over else phase(pod, states)
    status.setdefault("startTime", moment)
    status |= {"hostIP": NODE_ADDRESS, "hostIPs": [{"ip": NODE_ADDRESS}]}
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    if ending is not None and ending.reason and is_over:
        status |= {"reason": ending.reason, "message": ending.message}
    statuses = [(state, container_status(pod, state, ending, now)) for state in states]
    if is_over:
        statuses = [(state, _final_status(states, state, shown)) for state, shown in statuses]
    limit_messages([shown for _, shown in statuses])
    init = [shown for state, shown in statuses if state.role is not Role.MAIN]
    status["containerStatuses"] = [shown for state, shown in statuses if state.role is Role.MAIN]
    if init:
        status["initContainerStatuses"] = init
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    outcome = _outcome(pod, states, ending)
    set_pod_conditions(pod, status, states, outcome, moment, has_sandbox=bool(address) and not is_over)
    return status


def phase(pod: Obj, states: Sequence[ContainerState]) -> str:
    """Return the phase of a pod that is not stopped.

    Source: getPhase of the kubelet. A container that waits for its restart after it has run counts as stopped, not as waiting.
    """
    mains = [state for state in states if state.role is Role.MAIN]
    is_alive = any(state.is_alive for state in states)
    if not is_alive and any(state.role is Role.INIT and has_failed(pod, state) for state in states):
        return "Failed"
    if not has_initialized(states) or any(state.run is None or _is_being_started(state) for state in mains):
        return "Pending"
    if is_alive or any(not is_finished(pod, state) for state in mains):
        return "Running"
    return "Succeeded" if all(state.ended is not None and state.ended.code == 0 for state in mains) else "Failed"


def final_phase(states: Sequence[ContainerState], ending: Ending) -> str:
    """Return the phase of a pod that has stopped. One that was deleted has succeeded if all its main containers have."""
    mains = [state for state in states if state.role is Role.MAIN]
    has_succeeded = all(state.ended is not None and state.ended.code == 0 for state in mains)
    return "Succeeded" if has_succeeded and not ending.reason else "Failed"


def _is_being_started(state: ContainerState) -> bool:
    """The first run only: one that is restarted has a last state."""
    return state.is_alive and not state.is_running and state.restarts == 0


def _outcome(pod: Obj, states: Sequence[ContainerState], ending: Ending | None) -> str:
    """Return the phase that the pod will have for sure, or an empty string: conditions tell it before the phase does."""
    mains = [state for state in states if state.role is Role.MAIN]
    if ending is not None and not ending.is_deletion:
        is_done = not ending.reason and all(not state.is_alive for state in states if state.role is not Role.MAIN)
        return final_phase(states, ending) if ending.reason or is_done or not mains else ""
    if ending is not None and not any(state.is_alive for state in states):
        return final_phase(states, ending)
    return ""


def _final_status(states: Sequence[ContainerState], state: ContainerState, shown: Obj) -> Obj:
    """A container that was not seen to end has ended with its pod, unless its turn to start never came.

    Source: TerminatePod of the kubelet's status manager.
    """
    if "terminated" in shown["state"]:
        return shown
    if state.role is Role.MAIN:
        needs_init = any(other.role is not Role.MAIN for other in states)
        return shown if needs_init and not has_initialized(states) else unknown_status(shown)
    position = list(states).index(state)
    later = [other for other in states[position + 1 :] if other.run is not None]
    return unknown_status(shown) if later and state.run is None else shown
