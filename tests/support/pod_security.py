"""The rules of Pod Security's level `restricted`, for pods as they are written.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_PROFILES = ("RuntimeDefault", "Localhost")


def violations(pod: dict[str, Any]) -> Iterator[str]:
    """Yield what a namespace of this level would refuse in a pod's spec."""
    own = pod.get("securityContext") or {}
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field))
    for volume in pod.get("volumes") or []:
        yield from (f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - _VOLUMES)
    for container in [*(pod.get("initContainers") or []), *pod["containers"]]:
        context, name = container.get("securityContext") or {}, container["name"]
        merged = {**own, **context}
        if context.get("privileged"):
            yield f"{name}: privileged"
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: allowPrivilegeEscalation"
        capabilities = context.get("capabilities") or {}
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"{name}: capabilities"
        if merged.get("runAsNonRoot") is not True or merged.get("runAsUser") == 0:
            yield f"{name}: runAsNonRoot"
        if (merged.get("seccompProfile") or {}).get("type") not in _PROFILES:
            yield f"{name}: seccompProfile"
        if any(port.get("hostPort") for port in container.get("ports") or []):
            yield f"{name}: hostPort"


def pods_in(value: Any) -> Iterator[dict[str, Any]]:
    """The specs of pods, wherever they are in an object."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for part in value.values():
            yield from pods_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from pods_in(part)
