"""Computes a pod's status from its containers' states, like a kubelet. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api.conditions import set_condition
from trainwright.api.objects import Obj, copy_of, is_deleting
from trainwright.api.times import rfc3339
from trainwright.controlplane.node.container import Termination
from trainwright.controlplane.node.downward import NODE_ADDRESS


@dataclass(frozen=True)
class ContainerState:
    """The state of a container: waiting with a reason, running, or terminated; and how its previous run terminated."""

    name: str
    image: str
    restarts: int = 0
    waiting: str = ""
    waiting_message: str = ""
    running_since: float | None = None
    terminated: Termination | None = None
    last_terminated: Termination | None = None
    identity: str = ""


def pod_status(pod: Obj, init: list[ContainerState], main: list[ContainerState], now: str) -> Obj:
    """Return the pod's status. Unchanged conditions keep their transition times."""
    status = copy_of(pod.get("status") or {})
    restart = pod["spec"].get("restartPolicy", "Always")
    status["phase"] = phase(restart, init, main, deleting=is_deleting(pod))
    status.setdefault("startTime", now)
    status |= {"hostIP": NODE_ADDRESS, "podIP": NODE_ADDRESS, "podIPs": [{"ip": NODE_ADDRESS}]}
    status["containerStatuses"] = [_container_status(state) for state in main]
    if init:
        status["initContainerStatuses"] = [_container_status(state) for state in init]
    ready = bool(main) and all(state.running_since is not None for state in main)
    succeeded = status["phase"] == "Succeeded"
    initialized = all(state.terminated is not None and state.terminated.code == 0 for state in init)
    reason = (
        "" if ready else ("PodCompleted" if succeeded else "PodFailed" if status["phase"] == "Failed" else "ContainersNotReady")
    )
    set_condition(status, "PodScheduled", True, "", "", now)
    set_condition(status, "Initialized", initialized, "" if initialized else "ContainersNotInitialized", "", now)
    set_condition(status, "ContainersReady", ready, reason, "", now)
    set_condition(status, "Ready", ready, reason, "", now)
    return status


def phase(restart_policy: str, init: list[ContainerState], main: list[ContainerState], *, deleting: bool) -> str:
    """Return the pod's phase. With OnFailure a failed container will be restarted, so the pod is still Running."""
    restarts = restart_policy != "Never" and not deleting
    for state in init:
        if state.terminated is not None and state.terminated.code != 0 and not restarts:
            return "Failed"
    if main and all(state.terminated is not None for state in main):
        if all(state.terminated is not None and state.terminated.code == 0 for state in main) and restart_policy != "Always":
            return "Succeeded"
        return "Running" if restarts else "Failed"
    started = any(state.running_since is not None or state.terminated is not None or state.restarts for state in main)
    return "Running" if started else "Pending"


def timestamp(seconds: float) -> str:
    """Convert seconds since the epoch to RFC 3339."""
    return rfc3339(datetime.fromtimestamp(seconds, UTC))


def _container_status(state: ContainerState) -> Obj:
    status: Obj = {
        "name": state.name,
        "image": state.image,
        "imageID": "",
        "ready": state.running_since is not None,
        "started": state.running_since is not None,
        "restartCount": state.restarts,
        "state": _state(state),
        "lastState": {"terminated": _terminated(state.last_terminated, state.identity)} if state.last_terminated else {},
    }
    if state.identity:
        status["containerID"] = f"process://{state.identity}"
    return status


def _state(state: ContainerState) -> Obj:
    if state.terminated is not None:
        return {"terminated": _terminated(state.terminated, state.identity)}
    if state.running_since is not None:
        return {"running": {"startedAt": timestamp(state.running_since)}}
    waiting = {"reason": state.waiting or "ContainerCreating"}
    return {"waiting": waiting | ({"message": state.waiting_message} if state.waiting_message else {})}


def _terminated(termination: Termination, identity: str) -> Obj:
    reason = "Completed" if termination.code == 0 else "ContainerStatusUnknown" if termination.is_lost else "Error"
    terminated: Obj = {
        "exitCode": termination.code,
        "reason": reason,
        "startedAt": timestamp(termination.started_at),
        "finishedAt": timestamp(termination.finished_at),
        "containerID": f"process://{identity}",
    }
    if termination.signal:
        terminated["signal"] = termination.signal
    if termination.is_lost:
        terminated["message"] = "the exit of the process was not observed: the machine or its supervisor stopped"
    return terminated
