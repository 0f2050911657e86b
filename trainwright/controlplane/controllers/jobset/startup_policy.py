"""The startup policy of a JobSet. InOrder: each replicated job waits until all Jobs of the previous one have started."""

from __future__ import annotations

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, named
from trainwright.controlplane.controllers.jobset.children import ReconcileState

_IN_PROGRESS, _COMPLETED = "StartupPolicyInProgress", "StartupPolicyCompleted"


def is_in_order(jobset: Obj) -> bool:
    return (jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"


def has_started(replicated: Obj, counters: list[Obj]) -> bool:
    """Whether every Job is ready or has finished."""
    seen = named(counters, replicated["name"]) or {}
    started = sum(int(seen.get(counter) or 0) for counter in ("ready", "succeeded", "failed"))
    return started == int(replicated.get("replicas", 1))


def mark_in_progress(state: ReconcileState) -> None:
    state.update_condition(_IN_PROGRESS, True, "InOrderStartupPolicyInProgress", "in order startup policy is in progress")
    _turn_off(state, _COMPLETED)


def mark_completed(state: ReconcileState) -> None:
    state.update_condition(_COMPLETED, True, "InOrderStartupPolicyCompleted", "in order startup policy has completed")
    _turn_off(state, _IN_PROGRESS)


def _turn_off(state: ReconcileState, kind: str) -> None:
    """Set the other condition to False without changing its message and time, and without an Event."""
    entry = condition(state.jobset, kind)
    if entry is not None:
        entry["status"] = "False"
