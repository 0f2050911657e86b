"""The status of one container, as the API shows it: its state, the one before, whether it has started and is ready."""

from __future__ import annotations

from datetime import UTC, datetime

from trainwright.api.objects import Obj
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
from trainwright.controlplane.node.lifecycle.ending import Ending
from trainwright.controlplane.node.lifecycle.restart_backoff import go_duration, is_backing_off
from trainwright.controlplane.node.lifecycle.restart_rules import is_finished

BACK_OFF = "CrashLoopBackOff"
NOT_LOCATED = "The container could not be located when the pod was terminated"
Waiting = tuple[str, str]
"""A reason and a message."""


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


def is_ready(state: ContainerState) -> bool:
    """Whether the container is shown as ready: an init container by having succeeded, the others by running and their probe."""
    if state.role is Role.INIT:
        return state.ended is not None and state.ended.code == 0
    return state.has_started and state.is_ready


def waiting_reason(pod: Obj, state: ContainerState, ending: Ending | None, now: float) -> Waiting | None:
    """Return why the container waits, as the kubelet says it; None if it is running or has ended."""
    run = state.run
    if state.is_running:
        return None
    if run is None or run.ended is None:
        if state.blocked is not None:
            return state.blocked.reason, state.blocked.message
        return _first_reason(pod), ""
    if is_finished(pod, state) or (ending is not None and (ending.is_deletion or not _was_waiting(pod, state))):
        return None  # what is not started again shows how it ended
    if _never_shows_back_off(state):
        return None
    if state.blocked is not None:
        return state.blocked.reason, state.blocked.message
    shown = published_status(pod, state.name)
    is_told = ((shown.get("state") or {}).get("waiting") or {}).get("reason") == BACK_OFF
    if was_shown_ended(shown, run) and (is_backing_off(state, now) or is_told):
        where = f"{pod['metadata']['name']}_{pod['metadata'].get('namespace', 'default')}({pod['metadata']['uid']})"
        return BACK_OFF, (f"back-off {go_duration(run.backoff_seconds)} restarting failed container={state.name} pod={where}")
    if run.ended.reason == START_ERROR:
        return "RunContainerError", run.ended.message
    return None


def shows_back_off(pod: Obj, state: ContainerState, now: float) -> bool:
    """Whether a container has ended and waits, and its published status says so, if it ever will."""
    run, shown = state.run, published_status(pod, state.name)
    if run is None or run.ended is None:
        return False
    if _never_shows_back_off(state):
        return was_shown_ended(shown, run) and is_backing_off(state, now)
    return ((shown.get("state") or {}).get("waiting") or {}).get("reason") == BACK_OFF


def _never_shows_back_off(state: ContainerState) -> bool:
    """A sidecar that has succeeded is taken for an init container that is done. Source: convertToAPIContainerStatuses."""
    return state.role is Role.SIDECAR and state.ended is not None and state.ended.code == 0


def unknown_status(status: Obj) -> Obj:
    """Return the status of a container that had not ended when its pod did: where it is, and how it ended, is unknown."""
    lost = {"reason": STATUS_UNKNOWN, "message": NOT_LOCATED, "exitCode": KILLED_CODE, "startedAt": None, "finishedAt": None}
    return {**status, "ready": False, "started": False, "state": {"terminated": lost}}


def timestamp(seconds: float) -> str:
    """Convert seconds since the epoch to RFC 3339."""
    return rfc3339(datetime.fromtimestamp(seconds, UTC))


def _first_reason(pod: Obj) -> str:
    return "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"


def _was_waiting(pod: Obj, state: ContainerState) -> bool:
    return "waiting" in (published_status(pod, state.name).get("state") or {})


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
