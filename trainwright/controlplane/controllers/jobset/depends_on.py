"""Evaluates `dependsOn`: a replicated job may start when all its dependencies are complete or ready."""

from __future__ import annotations

from trainwright.api.objects import Obj, named


def dependencies_met(replicated: Obj, jobset: Obj, counters: list[Obj]) -> bool:
    """Whether all entries of `dependsOn` are met according to the counters.

    Complete: all replicas have succeeded. Ready: all are ready, succeeded or failed.
    """
    return all(dependency_met(dependency, jobset, counters) for dependency in replicated.get("dependsOn") or [])


def dependency_met(dependency: Obj, jobset: Obj, counters: list[Obj]) -> bool:
    """Whether one entry is met."""
    other = named(jobset["spec"]["replicatedJobs"], dependency["name"]) or {}
    counter = named(counters, dependency["name"]) or {}
    replicas = other.get("replicas", 1)
    if dependency["status"] == "Complete":
        return bool(counter.get("succeeded", 0) == replicas)
    return bool(counter.get("ready", 0) + counter.get("succeeded", 0) + counter.get("failed", 0) == replicas)
