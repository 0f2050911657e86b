"""Why a pod as a whole must stop, and with how much grace: deleted, past its deadline, evicted, or done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.api.objects import Obj, is_deleting
from trainwright.api.times import parse_time
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.restart_rules import has_failed, is_finished

DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
EVICTED_REASON = "Evicted"
EVICTION_GRACE_SECONDS = 1.0
_DEFAULT_GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Ending:
    """`reason` and `message` are those of the pod's status; they are empty for one that was deleted, or has done its work."""

    grace_seconds: float
    reason: str = ""
    message: str = ""
    is_deletion: bool = False


def ending_of(pod: Obj, states: Sequence[ContainerState], now: float, evicted: str = "") -> Ending | None:
    """Return why the pod must stop, or None. `evicted` is the message of an eviction by this node; `now` is in seconds."""
    grace = grace_seconds(pod)
    if evicted:
        return Ending(EVICTION_GRACE_SECONDS, EVICTED_REASON, evicted, is_deletion=is_deleting(pod))
    if is_deleting(pod):
        deletion_grace = pod["metadata"].get("deletionGracePeriodSeconds")
        return Ending(grace if deletion_grace is None else float(deletion_grace), is_deletion=True)
    deadline = deadline_at(pod)
    if deadline is not None and now >= deadline:
        return Ending(grace, DEADLINE_REASON, DEADLINE_MESSAGE)
    mains = [state for state in states if state.role is Role.MAIN]
    is_done = bool(mains) and all(is_finished(pod, state) for state in mains)
    if is_done or any(state.role is Role.INIT and has_failed(pod, state) for state in states):
        return Ending(grace)
    return None


def grace_seconds(pod: Obj) -> float:
    """Return how long the pod's containers have to stop, in seconds."""
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def deadline_at(pod: Obj) -> float | None:
    """Return the time of the pod's `activeDeadlineSeconds` in seconds since the epoch, counted from its start on the node."""
    seconds, started = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
    if seconds is None or started is None:
        return None
    return parse_time(started).timestamp() + float(seconds)
