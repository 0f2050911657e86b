"""Names the settings of a pod that this node cannot honour.

A setting that is silently ignored would be trusted; an Event says so, where `kubectl describe pod` shows it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

from trainwright.api.names import SERVICE_ACCOUNT_PATH
from trainwright.api.objects import Obj
from trainwright.controlplane.node.isolation.capabilities import refused_capabilities
from trainwright.controlplane.node.isolation.plan import container_identity
from trainwright.controlplane.node.isolation.support import Support

REASON = "NotHonoured"
"""Of the Event."""
_GROUPS = ("initContainers", "containers")


UserOfImage = Callable[[str], int | None]
"""Returns the user that an image names, as far as this node knows it."""


def not_honoured_message(pod: Obj, support: Support, *, is_root: bool, image_user: UserOfImage = lambda _image: None) -> str:
    """Return the message of the Event, or an empty string for an isolated pod that asks for nothing which is not honoured."""
    paths = ", ".join(not_honoured(pod, support, is_root=is_root, image_user=image_user))
    if support.available:
        return f"this node does not honour: {paths}" if paths else ""
    text = f"this node runs containers as plain processes, with paths rewritten: {support.reason}"
    return f"{text}; it does not honour: {paths}" if paths else text


def not_honoured(pod: Obj, support: Support, *, is_root: bool, image_user: UserOfImage = lambda _image: None) -> list[str]:
    """Return the paths of the pod's settings that are ignored, in the order of the pod; its restart rules last.

    `is_root`: whether the node runs as root. Settings that only repeat what is the case anyway are not named.
    """
    spec = pod["spec"]
    paths = _isolated(spec, is_root, image_user) if support.available else _not_isolated(spec)
    return list(dict.fromkeys((*paths, *_rules(spec))))


def _isolated(spec: Obj, is_root: bool, image_user: UserOfImage) -> Iterator[str]:
    containers = [container for group in _GROUPS for container in spec.get(group) or []]
    for field in ("hostPID", "hostIPC"):
        if spec.get(field):
            yield f"spec.{field}"
    if spec.get("shareProcessNamespace") and len(containers) > 1:
        yield "spec.shareProcessNamespace"
    if spec.get("hostUsers") is False and is_root:
        yield "spec.hostUsers"
    context = spec.get("securityContext") or {}
    for field, value in sorted(context.items()):
        if not _is_honoured(field, value, is_root=is_root):
            yield f"spec.securityContext.{field}"
    users = [
        container_identity(spec, container, is_root=is_root, image_user=image_user(str(container.get("image") or ""))).uid
        for container in containers
    ]
    if context.get("runAsNonRoot") and 0 in users:
        yield "spec.securityContext.runAsNonRoot"
    for (where, container), user in zip(_containers(spec), users, strict=True):
        own = container.get("securityContext") or {}
        if own.get("runAsNonRoot") and not user:
            yield f"{where}.securityContext.runAsNonRoot"
        for field, value in sorted(own.items()):
            if not _is_honoured(field, value, is_root=is_root):
                yield f"{where}.securityContext.{field}"
        if not is_root and own.get("runAsUser", users[0]) != users[0]:  # the files of both have one owner
            yield f"{where}.securityContext.runAsUser"
        if refused_capabilities(own.get("capabilities") or {}):
            yield f"{where}.securityContext.capabilities.add"
        for mount in container.get("volumeMounts") or []:
            if mount.get("mountPropagation", "None") != "None":
                yield f"{where}.volumeMounts{{{mount['name']}}}.mountPropagation"


def _is_honoured(field: str, value: object, *, is_root: bool) -> bool:
    match field:
        case "seccompProfile" | "appArmorProfile":
            return not isinstance(value, dict) or value.get("type") == "Unconfined"
        case "seLinuxOptions" | "sysctls" | "privileged" | "windowsOptions":
            return not value
        case "procMount":
            return value == "Default"
        case "fsGroup" | "supplementalGroups":
            return is_root or value in (None, [])
        case _:
            return True


def _not_isolated(spec: Obj) -> Iterator[str]:
    yield from _ignored_settings("spec.securityContext", spec.get("securityContext") or {})
    for where, container in _containers(spec):
        yield from _ignored_settings(f"{where}.securityContext", container.get("securityContext") or {})
        for mount in container.get("volumeMounts") or []:
            if mount.get("readOnly") and mount["mountPath"] != SERVICE_ACCOUNT_PATH:  # that one, admission adds elsewhere
                yield f"{where}.volumeMounts{{{mount['name']}}}.readOnly"
        if sys.platform != "linux" and "memory" in ((container.get("resources") or {}).get("limits") or {}):
            yield f"{where}.resources.limits.memory"  # it is measured in /proc


def _ignored_settings(where: str, context: Obj) -> Iterator[str]:
    for field, value in sorted(context.items()):
        if not _is_met(field, value):
            yield f"{where}.{field}"


def _is_met(field: str, value: object) -> bool:
    """Whether plain processes are as the setting wants them anyway, or whether it asks for more rights, not for fewer."""
    match field:
        case "runAsUser":
            return value == os.geteuid()
        case "runAsGroup":
            return value == os.getegid()
        case "runAsNonRoot":
            return not value or os.geteuid() != 0
        case "allowPrivilegeEscalation":
            return value is not False
        case _:
            return not value


def _rules(spec: Obj) -> Iterator[str]:
    """A restart of the whole pod in place (KEP 5532): the container's policy decides instead."""
    for where, container in _containers(spec):
        if any(rule.get("action") != "Restart" for rule in container.get("restartPolicyRules") or []):
            yield f"{where}.restartPolicyRules"


def _containers(spec: Obj) -> Iterator[tuple[str, Obj]]:
    for group in _GROUPS:
        for container in spec.get(group) or []:
            yield f"spec.{group}{{{container['name']}}}", container
