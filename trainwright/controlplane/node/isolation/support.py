"""Whether this machine lets this user isolate containers, and which settings of a pod the node cannot honour.

Isolation is tested by starting a container. A setting that is silently ignored would be trusted: an Event names those that are not
honoured, where `kubectl describe pod` shows it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.names import SERVICE_ACCOUNT_PATH
from trainwright.api.objects import Obj
from trainwright.controlplane.node.isolation.host_folders import remove_layer
from trainwright.controlplane.node.isolation.plan import Identity, container_identity, isolation_plan, refused_capabilities
from trainwright.flock import lock_descriptor

SETTING = "TRAINWRIGHT_ISOLATION"
_SUPERVISOR = Path(__file__).parents[1] / "supervisor" / "supervise.py"
_SECONDS = 10.0
_PROBE = ": > /etc/.trainwright-probe"
"""Succeeds in a container only if its root file system is writable, which needs an overlay."""
SYSCTLS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
)
"""Settings under /proc/sys that forbid user namespaces, the value that does so, and the remedy (Ubuntu, Debian, RHEL)."""
ExitRecord = dict[str, object]
NOT_HONOURED = "NotHonoured"
"""Of the Event."""
_GROUPS = ("initContainers", "containers")
UserOfImage = Callable[[str], int | None]
"""Returns the user that an image names, as far as this node knows it."""


@dataclass(frozen=True)
class Support:
    """Whether containers can be isolated. `reason` says why not, and what to do."""

    available: bool
    reason: str = ""


def run_probe(probe: Path) -> ExitRecord | None:
    """Run a container in the folder `probe`; return its exit record. Raises subprocess.TimeoutExpired."""
    plan = isolation_plan({}, {}, (), hostname="probe", identity=Identity(0, 0), layer=probe / "layer", is_root=os.geteuid() == 0)
    spec = {"argv": ["/bin/sh", "-c", _PROBE], "env": {}, "cwd": "/", "log": str(probe / "log"), "isolation": plan}
    (probe / "spec.json").write_text(json.dumps(spec), "utf-8")
    lock = os.open(probe / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock_descriptor(lock)
        subprocess.run(
            [sys.executable, "-S", "-E", "-P", str(_SUPERVISOR), str(probe), str(lock)],
            pass_fds=(lock,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            timeout=_SECONDS,
            check=False,
        )
    finally:
        os.close(lock)
    try:
        ended: ExitRecord = json.loads((probe / "exit.json").read_bytes())
    except FileNotFoundError:  # killed before it could write
        return None
    return ended


def isolation_support(
    folder: Path,
    *,
    run_probe: Callable[[Path], ExitRecord | None] = run_probe,
    sysctls: Sequence[tuple[str, str, str]] = SYSCTLS,
) -> Support:
    """Start a container in a temporary folder below `folder`, which is on the disk of the pods' folders, and report the result.

    Takes some 50 ms, at most 10 s. Raises OSError if `folder` is not writable.
    """
    if os.environ.get(SETTING, "").lower() in ("off", "0", "false", "no"):
        return Support(False, f"isolation is turned off by the environment variable {SETTING}")
    if sys.platform != "linux":
        return Support(False, "isolation needs the namespaces of Linux: run the cluster in a Linux virtual machine")
    with _probe_folder(folder) as probe:
        try:
            ended = run_probe(probe)
        except subprocess.TimeoutExpired:
            return Support(False, f"a container that tests isolation did not end within {_SECONDS:g} s")
    if ended is None:
        return Support(False, "a container that tests isolation ended without a result")
    if ended.get("reason") == "StartError":
        return Support(False, f"{ended['message']}; {_advice(str(ended['message']), sysctls)}")
    if ended["code"] != 0:
        return Support(
            False,
            f"the file system of {folder} cannot hold the writable layer of an overlay: move the cluster's home to a local disk "
            "(ext4, xfs or btrfs)",
        )
    return Support(True)


@contextmanager
def _probe_folder(folder: Path) -> Iterator[Path]:
    probe = Path(tempfile.mkdtemp(prefix=".isolation-probe-", dir=folder))
    try:
        yield probe
    finally:
        remove_layer(str(probe))


def _advice(message: str, sysctls: Sequence[tuple[str, str, str]]) -> str:
    for path, value, remedy in sysctls:
        try:
            is_forbidden = Path("/proc/sys", path).read_text("ascii").strip() == value
        except OSError:  # another kernel
            continue
        if is_forbidden:
            return f"an administrator can allow it: sysctl -w {remedy}"
    if "mount /proc" in message:
        return "in a container, /proc must be unmasked (docker run --security-opt systempaths=unconfined) or the container privileged"
    if "create namespaces" in message:
        return "the kernel or a seccomp filter forbids user namespaces: in a container, run it with seccomp=unconfined"
    return "Linux 5.12 or newer is needed, and in a container the rights to mount"


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
    # A restart of the whole pod in place (KEP 5532): the container's policy decides instead.
    rules = (
        f"{where}.restartPolicyRules"
        for where, container in _containers(spec)
        if any(rule.get("action") != "Restart" for rule in container.get("restartPolicyRules") or [])
    )
    return list(dict.fromkeys((*paths, *rules)))


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


def _containers(spec: Obj) -> Iterator[tuple[str, Obj]]:
    for group in _GROUPS:
        for container in spec.get(group) or []:
            yield f"spec.{group}{{{container['name']}}}", container


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
