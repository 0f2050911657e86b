"""Defaults of a pod spec by the API server, in Pods and in templates of Jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.objects import Obj

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILE_MODE = 0o644
_LONGEST_IMAGE = 255
_MODED = ("configMap", "secret", "projected", "downwardAPI")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


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
