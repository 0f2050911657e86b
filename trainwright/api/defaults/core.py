"""Defaults of core kinds by the API server, and the fields that typed clients always write in a status."""

from __future__ import annotations

from trainwright.api.defaults.pod import pod_spec_defaults
from trainwright.api.kinds import RBAC
from trainwright.api.objects import Obj

_TIMES = ("lastProbeTime", "lastTransitionTime")
_COUNTS = ("active", "failed", "succeeded")


def claim_defaults(claim: Obj, _old: Obj | None, _now: str) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def pod_template_defaults(template: Obj, _old: Obj | None, _now: str) -> None:
    spec = template.setdefault("template", {}).setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    pod_spec_defaults(spec)


def priority_defaults(priority: Obj, _old: Obj | None, _now: str) -> None:
    priority.setdefault("value", 0)
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def binding_defaults(binding: Obj, _old: Obj | None, _now: str) -> None:
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", RBAC)


def deployment_defaults(deployment: Obj, _old: Obj | None, _now: str) -> None:
    spec = deployment.setdefault("spec", {})
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxUnavailable": "25%", "maxSurge": "25%", **(strategy.get("rollingUpdate") or {})}
    pod_template_defaults(spec, _old, _now)


def network_policy_defaults(policy: Obj, _old: Obj | None, _now: str) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def event_defaults(event: Obj, _old: Obj | None, _now: str) -> None:
    for name in ("reportingComponent", "reportingInstance"):
        event.setdefault(name, "")


def event_times(event: Obj) -> None:
    """Missing times are written as null."""
    for name in ("eventTime", "firstTimestamp", "lastTimestamp"):
        event.setdefault(name, None)
    event.setdefault("source", {})


def pod_written(pod: Obj) -> None:
    status = pod.get("status") or {}
    _conditions_written(status)
    for group in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for entry in status.get(group) or []:
            _container_written(entry)


def _container_written(entry: Obj) -> None:
    for name in ("image", "imageID"):
        entry.setdefault(name, "")
    entry.setdefault("ready", False)
    entry.setdefault("restartCount", 0)
    for name in ("state", "lastState"):
        state = entry.setdefault(name, {})
        for at in ("startedAt", "finishedAt"):
            if state.get("terminated") is not None:
                state["terminated"].setdefault(at, None)
        if state.get("running") is not None:
            state["running"].setdefault("startedAt", None)


def job_written(job: Obj) -> None:
    """Counts of zero are omitted; times of conditions never are."""
    status = job.get("status") or {}
    for name in _COUNTS:
        if status.get(name) == 0:
            del status[name]
    _conditions_written(status)


def _conditions_written(status: Obj) -> None:
    for condition in status.get("conditions") or []:
        for name in _TIMES:
            condition.setdefault(name, None)
