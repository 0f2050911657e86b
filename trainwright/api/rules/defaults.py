"""Defaults that depend on other fields, as the API server and the JobSet webhook fill them in, in workloads, pods and core kinds.

Typed clients always write some fields of a status, which are here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.kinds import RBAC
from trainwright.api.objects import Obj, labels_of, name_of, uid_of
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.round_trip import rewrite

UNLIMITED = 2**31 - 1
_TIMES = ("lastProbeTime", "lastTransitionTime")
_COUNTS = ("active", "failed", "succeeded")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_MODE = 0o644
_LONGEST_IMAGE = 255
_MODED = ("configMap", "secret", "projected", "downwardAPI")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def jobset_defaults(jobset: Obj, old: Obj | None) -> None:
    """Set, in place, the defaults of the JobSet webhook on create, and the values that it writes for missing required fields.

    Templates are defaulted on every write, because a client that sends whole lists omits earlier defaults.
    """
    spec = jobset.setdefault("spec", {})
    if old is None:
        _fill_policies(spec)
    for job in spec.get("replicatedJobs") or []:
        template = job.setdefault("template", {}).setdefault("spec", {})
        template.setdefault("completionMode", "Indexed")
        template.setdefault("template", {}).setdefault("spec", {}).setdefault("restartPolicy", "OnFailure")
    rewrite(struct_named("JobSet"), jobset)


def _fill_policies(spec: Obj) -> None:
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or []):
        rule["name"] = rule.get("name") or f"failurePolicyRule{index}"
    for policy in spec.get("volumeClaimPolicies") or []:
        policy.setdefault("retentionPolicy", {"whenDeleted": "Delete"})


def job_defaults(job: Obj, old: Obj | None = None) -> None:
    """Set, in place, the API server's defaults of a batch/v1 Job.

    Selector and pod labels need the UID; they are not set until the object has one.
    """
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", UNLIMITED if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    if old is None and not spec.get("manualSelector") and uid_of(job):
        spec["manualSelector"] = False
        chosen = (spec.get("selector") or {}).get("matchLabels") or {}
        spec["selector"] = {**(spec.get("selector") or {})}
        spec["selector"]["matchLabels"] = {**chosen, names.CONTROLLER_UID_LABEL: uid_of(job)}
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels |= {
            names.CONTROLLER_UID_LABEL: uid_of(job),
            names.JOB_NAME_LABEL: name_of(job),
            "controller-uid": uid_of(job),
            "job-name": name_of(job),
        }
    pod_spec_defaults(template.setdefault("spec", {}))


def job_labels(job: Obj) -> None:
    """Copy, in place, the labels of the pod template to a Job without labels, as a server does when it decodes the Job."""
    labels = labels_of(job["spec"]["template"])
    if labels and not labels_of(job):
        job["metadata"]["labels"] = dict(labels)


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


def pod_defaults(pod: Obj) -> None:
    """Set, in place, the defaults of a Pod, with the admission plugins that are enabled by default."""
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    pod_spec_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", priority_of(spec))
    for container in _containers(spec):
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
    given = spec.get("tolerations") or []
    tolerated = [_evicted_later(taint) for taint in _TAINTS if not any(_tolerates(entry, taint) for entry in given)]
    if tolerated:
        spec["tolerations"] = [*given, *tolerated]


def priority_of(spec: Obj) -> int:
    """The priority of a pod's class; only system classes are known without a server."""
    return SYSTEM_PRIORITIES.get(spec.get("priorityClassName") or "", 0)


def _tolerates(toleration: Obj, taint: str) -> bool:
    """An empty key or effect matches all."""
    return toleration.get("key") in (None, "", taint) and toleration.get("effect") in (None, "", "NoExecute")


def _evicted_later(taint: str) -> Obj:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def pod_spec_defaults(spec: Obj) -> None:
    """Set, in place, the defaults of a pod spec, also in a template."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:  # the deprecated field is kept in sync
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in _containers(spec):
        _container_defaults(container)
    for volume in spec.get("volumes") or []:
        _volume_defaults(volume)


def _containers(spec: Obj) -> Iterator[Obj]:
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []


def _container_defaults(container: Obj) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if container.get("image"):
        container.setdefault("imagePullPolicy", _pull_policy(container["image"]))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for entry in container.get("env") or []:
        if entry.get("value") == "":
            del entry["value"]  # a server treats it as absent
        _field_reference(entry.get("valueFrom"))
    for name in _PROBES:
        if container.get(name) is not None:
            _probe_defaults(container[name])


def _probe_defaults(probe: Obj) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if probe.get("httpGet") is not None:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _volume_defaults(volume: Obj) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for kind in _MODED:
        if volume.get(kind) is not None:
            volume[kind].setdefault("defaultMode", _FILE_MODE)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items") or []:
        _field_reference(item)
    for source in (volume.get("projected") or {}).get("sources") or []:
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            _field_reference(item)


def _field_reference(holder: Any) -> None:
    reference = (holder or {}).get("fieldRef")
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    if len(image) > _LONGEST_IMAGE:  # not a valid image reference, so its tag is unknown
        return "IfNotPresent"
    name, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if "@" not in name and tag in ("", "latest") else "IfNotPresent"
