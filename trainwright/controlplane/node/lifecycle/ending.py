"""Why a pod as a whole must stop, and with how much grace: deleted, past its deadline, evicted, or done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.api.objects import Obj, is_deleting
from trainwright.api.times import parse_time
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role
from trainwright.controlplane.node.lifecycle.restart_rules import has_failed, is_finished

TERMINAL = ("Succeeded", "Failed")
"""The phases that a pod does not leave."""
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
EVICTED_REASON = "Evicted"
EVICTION_GRACE_SECONDS = 1.0
_DEFAULT_GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Ending:
    """`reason` and `message` are those of the pod's status; they are empty for one that was deleted, or has done its work.

    `began_at` is since when the grace counts, in seconds since the epoch; None: since each container is told to stop.
    """

    grace_seconds: float
    reason: str = ""
    message: str = ""
    is_deletion: bool = False
    began_at: float | None = None


def ending_of(pod: Obj, states: Sequence[ContainerState], now: float, evicted: str = "") -> Ending | None:
    """Return why the pod must stop, or None. `evicted` is the message of an eviction by this node; `now` is in seconds.

    A pod that passes its deadline while it is being deleted has failed for it all the same; one that has ended already has not.
    """
    grace, deadline = grace_seconds(pod), deadline_at(pod)
    if evicted:
        return Ending(EVICTION_GRACE_SECONDS, EVICTED_REASON, evicted, is_deletion=is_deleting(pod))
    is_late = deadline is not None and now >= deadline and not is_terminal(pod)
    reason, message = (DEADLINE_REASON, DEADLINE_MESSAGE) if is_late else ("", "")
    if is_deleting(pod):
        own = pod["metadata"].get("deletionGracePeriodSeconds")
        grace = grace if own is None else float(own)
        return Ending(grace, reason, message, is_deletion=True, began_at=_deleted_at(pod, grace))
    if is_late:
        return Ending(grace, reason, message, began_at=deadline)
    mains = [state for state in states if state.role is Role.MAIN]
    is_done = bool(mains) and all(is_finished(pod, state) for state in mains)
    failed = [state for state in states if state.role is Role.INIT and has_failed(pod, state)]
    if is_done or failed:
        ends = [state.ended.finished_at for state in failed or mains if state.ended is not None]
        return Ending(grace, began_at=max(ends))
    return None


def grace_left(ending: Ending, state: ContainerState, now: float) -> float:
    """Return how long a container has to stop, in seconds, from `now` on.

    A sidecar waits for its turn within the grace of the pod. Source: killContainer of the kubelet.
    """
    if state.role is not Role.SIDECAR or ending.began_at is None:
        return ending.grace_seconds
    return max(ending.grace_seconds - max(now - ending.began_at, 0.0), 0.0)


def is_terminal(pod: Obj) -> bool:
    """Whether the published phase of a pod is one that it does not leave."""
    return (pod.get("status") or {}).get("phase") in TERMINAL


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


def _deleted_at(pod: Obj, grace: float) -> float | None:
    """The deletion timestamp is when the grace ends. It has whole seconds: what was cut off is the pod's."""
    stamp = pod["metadata"].get("deletionTimestamp")
    return None if stamp is None else parse_time(stamp).timestamp() + 1.0 - grace
