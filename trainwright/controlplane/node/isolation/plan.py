"""Decides how a container is isolated: the plan that its supervisor carries out, as JSON in its spec.

Functions of the pod, the container and what the node knows; of the host, they only read where links lead. What the plan's entries
do is in `root_filesystem.py` and `credentials.py`.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.node.isolation.credentials import DEFAULT_CAPABILITIES

CONTAINER_UMASK = 0o022
"""What a container runtime gives; for the spec's `umask`."""
PROCESS_LIMIT = 4096
"""Processes and threads of a container: half of what a machine has at least, so that a runaway one leaves room for the others."""
UNSHARED_FOLDERS = ("/home", "/root", "/tmp", "/var/tmp", "/run", "/mnt", "/media", "/boot")  # noqa: S108
"""Folders of the host that no container sees, apart from its visible folders."""
_CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "IPC_OWNER": 15,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
"""Capabilities that a container may have, from linux/capability.h: none changes mounts.

Beyond the defaults these are two that only reach into the container's own namespaces.
"""


def isolation_plan(
    pod_spec: Obj,
    container: Obj,
    mounts: Sequence[ContainerMount],
    *,
    hostname: str,
    identity: Identity,
    layer: Path,
    visible: Iterable[Path] = (),
    hidden: Iterable[Path] = (),
    shared: Iterable[Path] = (),
    is_root: bool,
) -> Obj:
    """Return the plan for one run of a container, for the key "isolation" of its spec.

    `layer` is a folder that does not exist yet, on a disk, for what the container writes outside of its mounts. `hidden` are host
    folders that the container must not see, such as the operator's home and that of the cluster; `visible` are folders that it
    must see nevertheless, and `shared` real paths of folders that it may change, too.
    `is_root`: whether the node runs as root, and can map all ids.
    """
    context = container.get("securityContext") or {}
    shared = set(shared) - {Path("/")}
    hidden = {variant for path in hidden for variant in (path, Path(os.path.realpath(path)))} - {Path("/")} - shared
    ordered = sorted(mounts, key=lambda mount: len(clean_target(mount.container_path)))
    return {
        "layer": str(layer),
        "hostname": hostname[:63],
        "map_all_ids": is_root,
        "uid": identity.uid,
        "gid": identity.gid,
        "groups": list(identity.groups),
        "capabilities": sorted(kept_capabilities(context.get("capabilities") or {})),
        "processes": PROCESS_LIMIT,
        "no_new_privs": context.get("allowPrivilegeEscalation") is False,
        "read_only_root": bool(context.get("readOnlyRootFilesystem")),
        "hidden": sorted(str(path) for path in hidden),
        "visible": _needed(visible, hidden, shared),
        "shared": sorted(str(path) for path in shared),
        "mounts": [
            {
                "target": clean_target(mount.container_path),
                "source": None if mount.host_path is None else str(mount.host_path),
                "volume": None if mount.volume is None else str(mount.volume),
                "read_only": mount.read_only,
                "tmpfs_bytes": mount.tmpfs_bytes,
            }
            for mount in ordered
        ],
    }


def _needed(visible: Iterable[Path], hidden: set[Path], shared: set[Path]) -> list[str]:
    """Return those of the visible folders that a container would not see anyway, without folders inside others."""
    shown, covers = set(visible) | shared, (hidden | {Path(path) for path in UNSHARED_FOLDERS}) - shared
    listed = shown | covers
    nearest = {path: next((parent for parent in path.parents if parent in listed), None) for path in shown - covers - shared}
    return sorted(str(path) for path, parent in nearest.items() if parent in covers)


@dataclass(frozen=True)
class Identity:
    """The user of a container's processes. `groups` are supplementary ones."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def container_identity(pod_spec: Obj, container: Obj, *, is_root: bool, image_user: int | None = None) -> Identity:
    """Return the user, group and supplementary groups of a container: its own settings, then the pod's, the image's user, then root.

    `is_root`: whether the node runs as root; otherwise there are no supplementary groups.
    """
    pod, own = pod_spec.get("securityContext") or {}, container.get("securityContext") or {}
    uid = _first(own.get("runAsUser"), pod.get("runAsUser"), image_user, 0)
    gid = _first(own.get("runAsGroup"), pod.get("runAsGroup"), 0)
    if not is_root:
        return Identity(uid, gid)
    groups = {gid, *(pod.get("supplementalGroups") or [])} | ({pod["fsGroup"]} if pod.get("fsGroup") is not None else set())
    return Identity(uid, gid, tuple(sorted(groups)))


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def clean_target(path: str) -> str:
    """Return an absolute path without `//`, `.` and a slash at the end. A relative one is taken from the root, as runtimes do."""
    return "/" + posixpath.normpath("/" + path).lstrip("/")


@dataclass(frozen=True)
class ContainerMount:
    """A mount at `container_path`.

    `host_path` must be without symbolic links: resolve it when it is checked. Otherwise a container that changes a folder of a
    shared volume into a link, after the check, would get the link's destination; such a mount fails. None stands for a tmpfs of at
    most `tmpfs_bytes` (None: half of the memory).
    `volume` is set for a pod's volume: its own path, which has no links. What is mounted is then what `host_path` leads to when the
    container starts, with the links that are there, but never out of the volume.
    """

    container_path: str
    host_path: Path | None
    read_only: bool = False
    tmpfs_bytes: int | None = None
    volume: Path | None = None


def kept_capabilities(setting: Obj) -> set[int]:
    """Return the numbers of the capabilities of a container whose `securityContext.capabilities` is `setting`.

    Added ones that cannot be granted are left out; `refused_capabilities` names them.
    """
    added, dropped = _capability_names(setting.get("add")), _capability_names(setting.get("drop"))
    kept = set() if "ALL" in dropped else {*DEFAULT_CAPABILITIES} - {_CAPABILITIES.get(name) for name in dropped}
    return kept | {number for name, number in _CAPABILITIES.items() if name in added or "ALL" in added}


def _capability_names(given: list[str] | None) -> list[str]:
    return [name.upper().removeprefix("CAP_") for name in given or []]


def refused_capabilities(setting: Obj) -> list[str]:
    """Return the names of added capabilities that no container gets here."""
    return [name for name in _capability_names(setting.get("add")) if name not in _CAPABILITIES]
