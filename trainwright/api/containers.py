"""The containers in a pod's status: all of them, how often they were restarted, and how their last runs ended."""

from __future__ import annotations

from trainwright.api.objects import Obj


def container_statuses(pod: Obj) -> list[Obj]:
    """Return the statuses of the init containers, then those of the main containers."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def restart_count(pod: Obj) -> int:
    """Return the restarts of all containers of a pod."""
    return sum(int(status.get("restartCount") or 0) for status in container_statuses(pod))


def run_ends(status: Obj) -> list[Obj]:
    """Return how a container's runs ended, the last two at most and oldest first, as its status says (`terminated`)."""
    states = (status.get("lastState") or {}, status.get("state") or {})
    return [state["terminated"] for state in states if state.get("terminated")]
