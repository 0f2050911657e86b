"""Since when the node of a pod has not answered, from the pod alone: clients may not read nodes. Pure, but for the clock."""

from __future__ import annotations

import time
from datetime import datetime

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj

_LOST_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
_LATE_DELETION_SECONDS = 10
"""Seconds after its grace period for which a pod may exist before its node counts as lost."""


def lost_since(pod: Obj) -> str | None:
    """Return since when a pod that is being deleted has not answered: it still exists long after its grace period. None if it ends."""
    deadline, phase = pod["metadata"].get("deletionTimestamp"), (pod.get("status") or {}).get("phase")
    if not deadline or phase in ("Succeeded", "Failed"):
        return None
    if time.time() < datetime.fromisoformat(deadline).timestamp() + _LATE_DELETION_SECONDS:
        return None
    ready = condition(pod, "Ready") or {}
    return str(ready.get("lastTransitionTime") or deadline) if ready.get("status") != "True" else deadline


def unreachable_since(pod: Obj) -> str | None:
    """Return since when the node of a running pod has not answered: it was set not ready, although its containers are."""
    ready, status = condition(pod, "Ready") or {}, pod.get("status") or {}
    states = status.get("containerStatuses") or []
    if status.get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
        return None
    is_silent = ready.get("status") == "False" and not ready.get("reason")
    return (
        str(ready.get("lastTransitionTime") or "?")
        if is_silent and states and all(entry.get("ready") for entry in states)
        else None
    )


def toleration_seconds(pod: Obj) -> int | None:
    """Return for how many seconds a pod stays on a node that does not answer; None for ever."""
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    of_lost = [
        entry
        for entry in tolerations
        if entry.get("key") in (None, "", *_LOST_TAINTS) and entry.get("effect") in (None, "", "NoExecute")
    ]
    seconds = [entry.get("tolerationSeconds") for entry in of_lost]
    return max((int(each) for each in seconds if each is not None), default=0) if None not in seconds else None
