"""Computes a pod's status from its containers' states, like a kubelet: phase, conditions, container statuses. Pure.

A container's status has its state, the one before, and whether it has started and is ready. Conditions are like the kubelet's: unlike
those of other kinds, they have no reason and no message where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from trainwright.api.conditions import condition
from trainwright.api.containers import run_ends
from trainwright.api.objects import Obj, copy_of
from trainwright.api.times import rfc3339
from trainwright.controlplane.node.lifecycle.container_state import (
    KILLED_CODE,
    START_ERROR,
    STATUS_UNKNOWN,
    ContainerState,
    Role,
    Run,
    Termination,
    published_status,
    was_shown_ended,
)
from trainwright.controlplane.node.lifecycle.decision import Ending, has_initialized, is_terminal
from trainwright.controlplane.node.lifecycle.restarts import go_duration, has_failed, is_backing_off, is_finished
from trainwright.controlplane.node.lifecycle.termination_message import limit_messages

NODE_ADDRESS = "127.0.0.1"
Shown = tuple[ContainerState, Obj]
"""A container and its status."""
BACK_OFF = "CrashLoopBackOff"
NOT_LOCATED = "The container could not be located when the pod was terminated"
Waiting = tuple[str, str]
"""A reason and a message."""


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


def _was_started(found: Obj) -> bool:
    return "waiting" not in found["state"] or bool(found["lastState"])


def _mains_had_turn(init: Sequence[Shown], mains: Sequence[Shown]) -> bool:
    if not init or any(_was_started(found) for _, found in mains):
        return True  # nothing stood before them, or some have run
    last, found = init[-1]
    return last.role is Role.INIT and any(ended.get("exitCode") == 0 for ended in run_ends(found))


def _outcome(pod: Obj, states: Sequence[ContainerState], ending: Ending | None) -> str:
    """Return the phase that the pod will have for sure, or an empty string: conditions tell it before the phase does."""
    if ending is None:
        return ""  # a container that has ended may be restarted
    if ending.reason or any(state.role is Role.INIT and has_failed(pod, state) for state in states):
        return "Failed"
    return "" if any(state.is_alive for state in states) else final_phase(states, ending)


def container_status(pod: Obj, state: ContainerState, ending: Ending | None, now: float) -> Obj:
    """Return the entry of `containerStatuses` or `initContainerStatuses`. `now` is in seconds since the epoch."""
    run, waiting = state.run, waiting_reason(pod, state, ending, now)
    ready = is_ready(state)
    status: Obj = {
        "name": state.name,
        "image": state.spec.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": state.is_running and state.is_startup_passed,
        "restartCount": state.restarts,
        "lastState": {},
    }
    if run is not None:
        status["containerID"] = run.identity
    last = state.previous
    if waiting is not None:
        reason, message = waiting
        status["state"] = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        last = state.ended or last
        identity = run.identity if state.ended is not None and run is not None else _identity_before(run)
    elif state.ended is not None and run is not None:
        status["state"] = {"terminated": _terminated(state.ended, run.identity)}
        identity = _identity_before(run)
    else:
        started = (run.started_at if run is not None else None) or now
        status["state"] = {"running": {"startedAt": timestamp(started)}}
        identity = _identity_before(run)
    if last is not None:
        status["lastState"] = {"terminated": _terminated(last, identity)}
    return status


def _identity_before(run: Run | None) -> str:
    if run is None:
        return ""
    head, _, attempt = run.identity.rpartition("/")
    return f"{head}/{int(attempt) - 1}"


def _terminated(termination: Termination, identity: str) -> Obj:
    terminated: Obj = {
        "exitCode": termination.code,
        "reason": termination.why,
        "startedAt": timestamp(termination.started_at),
        "finishedAt": timestamp(termination.finished_at),
        "containerID": identity,
    }
    if termination.message:
        terminated["message"] = termination.message
    return terminated


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


def phase(states: Sequence[ContainerState]) -> str:
    """Return the phase of a pod that has not stopped: Running once all its main containers were started.

    Source: getPhase of the kubelet. A container that waits for its restart after it has run counts as stopped, not as waiting.
    """
    mains = [state for state in states if state.role is Role.MAIN]
    # The first run only: one that is restarted has a last state.
    are_being_started = (state.is_alive and not state.is_running and state.restarts == 0 for state in mains)
    return "Pending" if any(state.run is None for state in mains) or any(are_being_started) else "Running"


def final_phase(states: Sequence[ContainerState], ending: Ending) -> str:
    """Return the phase of a pod that has stopped. One that was deleted has succeeded if all its main containers have."""
    mains = [state for state in states if state.role is Role.MAIN]
    has_succeeded = all(state.ended is not None and state.ended.code == 0 for state in mains)
    return "Succeeded" if has_succeeded and not ending.reason else "Failed"


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


def is_ready(state: ContainerState) -> bool:
    """Whether the container is shown as ready: an init container by having succeeded, the others by running and their probe."""
    if state.role is Role.INIT:
        return state.ended is not None and state.ended.code == 0
    return state.has_started and state.is_ready


def waiting_reason(pod: Obj, state: ContainerState, ending: Ending | None, now: float) -> Waiting | None:
    """Return why the container waits, as the kubelet says it; None if it is running or has ended."""
    run = state.run
    if state.is_running:
        return None  # it does not wait
    if run is None or run.ended is None:  # it has not run, or is being started
        if state.blocked is not None:
            return state.blocked.reason, state.blocked.message
        return ("PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"), ""
    shown = published_status(pod, state.name)
    was_waiting = "waiting" in (shown.get("state") or {})
    if is_finished(pod, state) or (ending is not None and (ending.is_deletion or not was_waiting)):
        return None  # what is not started again shows how it ended
    if _never_shows_back_off(state):
        return None
    if state.blocked is not None:  # its restart was tried, and failed
        return state.blocked.reason, state.blocked.message
    is_told = ((shown.get("state") or {}).get("waiting") or {}).get("reason") == BACK_OFF
    if was_shown_ended(shown, run) and (is_backing_off(state, now) or is_told):
        where = f"{pod['metadata']['name']}_{pod['metadata'].get('namespace', 'default')}({pod['metadata']['uid']})"
        return BACK_OFF, (f"back-off {go_duration(run.backoff_seconds)} restarting failed container={state.name} pod={where}")
    if run.ended.reason == START_ERROR:
        return "RunContainerError", run.ended.message
    return None


def _never_shows_back_off(state: ContainerState) -> bool:
    """A sidecar that has succeeded is taken for an init container that is done. Source: convertToAPIContainerStatuses."""
    return state.role is Role.SIDECAR and state.ended is not None and state.ended.code == 0


def shows_back_off(pod: Obj, state: ContainerState, now: float) -> bool:
    """Whether a container has ended and waits, and its published status says so, if it ever will."""
    run, shown = state.run, published_status(pod, state.name)
    if run is None or run.ended is None:
        return False  # it runs, has not run, or is being started
    if _never_shows_back_off(state):
        return was_shown_ended(shown, run) and is_backing_off(state, now)
    return ((shown.get("state") or {}).get("waiting") or {}).get("reason") == BACK_OFF


def unknown_status(status: Obj) -> Obj:
    """Return the status of a container that had not ended when its pod did: where it is, and how it ended, is unknown."""
    lost = {"reason": STATUS_UNKNOWN, "message": NOT_LOCATED, "exitCode": KILLED_CODE, "startedAt": None, "finishedAt": None}
    return {**status, "ready": False, "started": False, "state": {"terminated": lost}}


def timestamp(seconds: float) -> str:
    """Convert seconds since the epoch to RFC 3339."""
    return rfc3339(datetime.fromtimestamp(seconds, UTC))
