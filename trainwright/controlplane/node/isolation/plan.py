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
from trainwright.controlplane.node.isolation.capabilities import kept_capabilities
from trainwright.controlplane.node.isolation.mounts import ContainerMount

CONTAINER_UMASK = 0o022
"""What a container runtime gives; for the spec's `umask`."""

PROCESS_LIMIT = 4096
"""Processes and threads of a container: half of what a machine has at least, so that a runaway one leaves room for the others."""

UNSHARED_FOLDERS = ("/home", "/root", "/tmp", "/var/tmp", "/run", "/mnt", "/media", "/boot")  # noqa: S108
"""Folders of the host that no container sees, apart from its visible folders."""


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
    return sorted(str(path) for path in shown - covers - shared if _nearest(path, shown | covers) in covers)


def _nearest(path: Path, candidates: set[Path]) -> Path | None:
    return next((parent for parent in path.parents if parent in candidates), None)


def clean_target(path: str) -> str:
    """Return an absolute path without `//`, `.` and a slash at the end. A relative one is taken from the root, as runtimes do."""
    return "/" + posixpath.normpath("/" + path).lstrip("/")


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
