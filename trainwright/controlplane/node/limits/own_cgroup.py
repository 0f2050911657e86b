"""Finds the control group of this process for a controller, such as memory. Source: cgroups(7), proc(5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_UNREADABLE = "/.."


@dataclass(frozen=True)
class OwnCgroup:
    """A control group of `version` 1 or 2 at `folder`, in the hierarchy that is mounted at `hierarchy`."""

    folder: Path
    hierarchy: Path
    version: int
    is_root: bool
    """Whether it is the root of the machine's hierarchy, which may have both processes and limited children."""


def own_cgroup(controller: str, proc: Path = Path("/proc/self")) -> OwnCgroup | None:
    """Return the group of this process, or None if none is mounted. Version 1 wins where both have the controller: it then has it."""
    try:
        groups, mounts = (proc / "cgroup").read_text("utf-8"), (proc / "mountinfo").read_text("utf-8", errors="replace")
    except FileNotFoundError:  # not Linux
        return None
    for version in (1, 2):
        path = _own_path(groups, version, controller)
        if path is not None and (found := _located(path, mounts, version, controller)) is not None:
            return found
    return None


def _own_path(groups: str, version: int, controller: str) -> str | None:
    for line in groups.splitlines():
        number, controllers, path = line.split(":", 2)
        is_wanted = controller in controllers.split(",") if version == 1 else number == "0"
        if is_wanted and not path.startswith(_UNREADABLE):
            return path
    return None


def _located(path: str, mounts: str, version: int, controller: str) -> OwnCgroup | None:
    """Return the folder of a group's path, below the mount that shows it."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, mount_point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        is_wanted = kind == "cgroup" and controller in options.split(",") if version == 1 else kind == "cgroup2"
        if is_wanted and Path(path).is_relative_to(root):
            folder = Path(mount_point) / Path(path).relative_to(root)
            # Only the root of the machine has no limits of its own.
            return OwnCgroup(folder, Path(mount_point), version, is_root=path == "/" and not (folder / "cgroup.type").exists())
    return None
