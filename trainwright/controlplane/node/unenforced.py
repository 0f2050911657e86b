"""Names the security settings of a pod that this node does not enforce, since its containers are processes of one user.

A setting that is silently ignored would be trusted; an Event says so, where `kubectl describe pod` shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from trainwright.api.objects import Obj

REASON = "SecurityNotEnforced"
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # mounted by admission, not by the pod's author


def unenforced_message(pod: Obj) -> str:
    """Return the message of the Event, or an empty string for a pod that asks for nothing which is not enforced."""
    paths = list(dict.fromkeys(_paths(pod["spec"])))
    if not paths:
        return ""
    return f"not enforced by this node, which runs containers as processes of one user: {', '.join(paths)}"


def _paths(spec: Obj) -> Iterator[str]:
    yield from _settings("spec.securityContext", spec.get("securityContext") or {})
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or []:
            where = f"spec.{group}{{{container['name']}}}"
            yield from _settings(f"{where}.securityContext", container.get("securityContext") or {})
            for mount in container.get("volumeMounts") or []:
                if mount.get("readOnly") and mount["mountPath"] != _TOKEN_PATH:
                    yield f"{where}.volumeMounts{{{mount['name']}}}.readOnly"


def _settings(where: str, context: Obj) -> Iterator[str]:
    for field, value in sorted(context.items()):
        if not _is_met(field, value):
            yield f"{where}.{field}"


def _is_met(field: str, value: object) -> bool:
    """Whether the processes are as the setting wants them anyway, or whether it asks for more rights, not for fewer."""
    match field:
        case "runAsUser":
            return value == os.geteuid()
        case "runAsGroup":
            return value == os.getegid()
        case "runAsNonRoot":
            return not value or os.geteuid() != 0
        case "privileged" | "readOnlyRootFilesystem":
            return not value
        case "allowPrivilegeEscalation":
            return value is not False
        case _:
            return not value
