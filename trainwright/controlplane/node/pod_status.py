"""From what the containers of a pod are doing to the pod's status, as a kubelet writes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from trainwright.api.conditions import set_condition
from trainwright.api.objects import Obj, copy_of, is_deleting
from trainwright.api.times import rfc3339
from trainwright.controlplane.node.container import Exited
from trainwright.controlplane.node.downward import NODE_ADDRESS


@dataclass(frozen=True)
class ContainerState:
    """One container now: waiting (with a reason), running since a time, or ended; and how its previous run ended."""

    name: str
    image: str
    restarts: int = 0
    waiting: str = ""
    waiting_message: str = ""
    running_since: float | None = None
    ended: Exited | None = None
    before: Exited | None = None
    identity: str = ""


def pod_status(pod: Obj, init: list[ContainerState], main: list[ContainerState], now: str) -> Obj:
    """The whole status of the pod; conditions keep their transition times where nothing changed."""
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
    initialized = all(state.ended is not None and state.ended.code == 0 for state in init)
    reason = (
        "" if ready else ("PodCompleted" if succeeded else "PodFailed" if status["phase"] == "Failed" else "ContainersNotReady")
    )
    set_condition(status, "PodScheduled", True, "", "", now)
    set_condition(status, "Initialized", initialized, "" if initialized else "ContainersNotInitialized", "", now)
    set_condition(status, "ContainersReady", ready, reason, "", now)
    set_condition(status, "Ready", ready, reason, "", now)
    return status


def phase(restart_policy: str, init: list[ContainerState], main: list[ContainerState], *, deleting: bool) -> str:
    """The pod's phase. With OnFailure a container that failed is about to run again, so the pod is still Running."""
    again = restart_policy != "Never" and not deleting
    for state in init:
        if state.ended is not None and state.ended.code != 0 and not again:
            return "Failed"
    if main and all(state.ended is not None for state in main):
        if all(state.ended is not None and state.ended.code == 0 for state in main) and restart_policy != "Always":
            return "Succeeded"
        return "Running" if again else "Failed"
    started = any(state.running_since is not None or state.ended is not None or state.restarts for state in main)
    return "Running" if started else "Pending"


def moment(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339."""
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
        "lastState": {"terminated": _terminated(state.before, state.identity)} if state.before else {},
    }
    if state.identity:
        status["containerID"] = f"process://{state.identity}"
    return status


def _state(state: ContainerState) -> Obj:
    if state.ended is not None:
        return {"terminated": _terminated(state.ended, state.identity)}
    if state.running_since is not None:
        return {"running": {"startedAt": moment(state.running_since)}}
    waiting = {"reason": state.waiting or "ContainerCreating"}
    return {"waiting": waiting | ({"message": state.waiting_message} if state.waiting_message else {})}


def _terminated(ended: Exited, identity: str) -> Obj:
    reason = "Completed" if ended.code == 0 else "ContainerStatusUnknown" if ended.lost else "Error"
    terminated: Obj = {
        "exitCode": ended.code,
        "reason": reason,
        "startedAt": moment(ended.started_at),
        "finishedAt": moment(ended.finished_at),
        "containerID": f"process://{identity}",
    }
    if ended.signal:
        terminated["signal"] = ended.signal
    if ended.lost:
        terminated["message"] = "the process ended while nobody watched it: the machine or its supervisor stopped"
    return terminated
