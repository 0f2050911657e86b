"""When may a replicated job start? When all that it depends on have completed, or are ready."""

from __future__ import annotations

from trainwright.api.objects import Obj, named


def dependencies_met(replicated: Obj, jobset: Obj, counters: list[Obj]) -> bool:
    """Whether every entry of `dependsOn` holds with the counters of this pass.

    Complete: all replicas succeeded. Ready: all are ready, succeeded or failed.
    """
    return all(dependency_met(dependency, jobset, counters) for dependency in replicated.get("dependsOn") or [])


def dependency_met(dependency: Obj, jobset: Obj, counters: list[Obj]) -> bool:
    """Whether this one entry holds."""
    other = named(jobset["spec"]["replicatedJobs"], dependency["name"]) or {}
    seen = named(counters, dependency["name"]) or {}
    replicas = other.get("replicas", 1)
    if dependency["status"] == "Complete":
        return bool(seen.get("succeeded", 0) == replicas)
    return bool(seen.get("ready", 0) + seen.get("succeeded", 0) + seen.get("failed", 0) == replicas)
