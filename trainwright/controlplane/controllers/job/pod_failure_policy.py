"""Evaluates a Job's podFailurePolicy for a failed pod. The first matching rule applies."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.objects import Obj, name_of, namespace_of


@dataclass(frozen=True)
class Match:
    """The action of the matching rule, and a message like that of the upstream controller."""

    action: str
    message: str


def matching_rule(spec: Obj, pod: Obj) -> Match | None:
    """Return the first rule that matches the failed pod, or None."""
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or []):
        exits, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        seen = _exit(exits, pod) if exits else _condition(conditions, pod)
        if seen is not None:
            return Match(rule["action"], f"{seen} matching {rule['action']} rule at index {number}")
    return None


def counts(spec: Obj, pod: Obj) -> bool:
    """Whether the pod's failure counts towards the limits."""
    match = matching_rule(spec, pod)
    return match is None or match.action != "Ignore"


def fails_job(spec: Obj, failed: list[Obj]) -> str | None:
    """Return the message of the first failed pod that fails the Job, or None."""
    for pod in failed:
        match = matching_rule(spec, pod)
        if match is not None and match.action == "FailJob":
            return match.message
    return None


def _exit(rule: Obj, pod: Obj) -> str | None:
    listed = pod.get("status") or {}
    for status in [*(listed.get("containerStatuses") or []), *(listed.get("initContainerStatuses") or [])]:
        ended = (status.get("state") or {}).get("terminated")
        code = int((ended or {}).get("exitCode") or 0)
        if code == 0 or rule.get("containerName") not in (None, "", status["name"]):
            continue  # it runs or has succeeded, or the rule names another container
        if (code in rule["values"]) == (rule["operator"] == "In"):
            return f"Container {status['name']} for pod {namespace_of(pod)}/{name_of(pod)} failed with exit code {code}"
    return None


def _condition(patterns: list[Obj], pod: Obj) -> str | None:
    for entry in (pod.get("status") or {}).get("conditions") or []:
        for pattern in patterns:
            if entry.get("type") == pattern["type"] and entry.get("status") == pattern.get("status", "True"):
                return f"Pod {namespace_of(pod)}/{name_of(pod)} has condition {entry['type']}"
    return None
