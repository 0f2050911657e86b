"""In which order do the replicated jobs of a JobSet start? InOrder: each waits until all Jobs of the one before have started."""

from __future__ import annotations

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, named
from trainwright.controlplane.controllers.jobset.look import Look

_IN_PROGRESS, _COMPLETED = "StartupPolicyInProgress", "StartupPolicyCompleted"


def is_in_order(jobset: Obj) -> bool:
    return (jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"


def has_started(replicated: Obj, counters: list[Obj]) -> bool:
    """Whether every Job is ready, or has ended either way."""
    seen = named(counters, replicated["name"]) or {}
    started = sum(int(seen.get(counter) or 0) for counter in ("ready", "succeeded", "failed"))
    return started == int(replicated.get("replicas", 1))


def mark_in_progress(look: Look) -> None:
    look.set(_IN_PROGRESS, True, "InOrderStartupPolicyInProgress", "in order startup policy is in progress")
    _turn_off(look, _COMPLETED)


def mark_completed(look: Look) -> None:
    look.set(_COMPLETED, True, "InOrderStartupPolicyCompleted", "in order startup policy has completed")
    _turn_off(look, _IN_PROGRESS)


def _turn_off(look: Look, kind: str) -> None:
    """The two exclude each other; the one that ends keeps its words and its time, and is no event."""
    entry = condition(look.jobset, kind)
    if entry is not None:
        entry["status"] = "False"
