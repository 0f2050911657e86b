"""A control group (cgroup) for each container, version 1 or 2, where this user may create them below its own: limits, and a border.

One group per run of a container: OWN/trainwright-HASH/POD_UID/CONTAINER-ATTEMPT. HASH is of the node's home folder, so that several
nodes of one user do not touch each other's groups. Version 1 has one hierarchy for each controller.
Source: Documentation/admin-guide/cgroup-v1/memory.rst, pids.rst and cgroup-v2.rst, cgroups(7), proc(5).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.controlplane.node.limits.group_files import oom_kills, remove_group

AGENT_LEAF = "trainwright-agent"
"""With version 2, a group with limited children must not have processes of its own: they are moved into this child."""
CONTROLLERS = ("memory", "pids", "cpu")
_WEIGHTS = {"cpu.weight": 50, "cpu.shares": 512}
"""Of all pods together, half of the control plane's: however many processes they have, the API server answers."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SEARCH_DEPTH = 8
_ATTEMPTS = 5
"""Each may find that the supervisor of another container has just removed the pod's group, which was empty."""
_UNREADABLE = "/.."
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ControlGroups:
    """The control groups of one node, in one or more hierarchies."""

    hierarchies: tuple[Hierarchy, ...]

    @classmethod
    def find(cls, home: Path) -> ControlGroups | None:
        """Return the groups of the node with this home folder, or None where this user may not create any. Linux only.

        With version 2, moves this process and its children into a child of its own group, if no others are in that group.
        """
        found: list[Hierarchy] = []
        for own, controllers in _own_groups():
            try:
                if (hierarchy := _hierarchy(own, controllers, _base_name(home))) is not None:
                    found.append(hierarchy)
            except OSError as error:  # not for this user: supervisors watch memory instead
                log.info("event=no_control_groups folder=%s controllers=%s error=%s", own.folder, ",".join(controllers), error)
        return cls(tuple(found)) if found else None

    @property
    def limit_memory(self) -> bool:
        """Whether the kernel keeps memory limits; without, supervisors watch."""
        return any("memory" in hierarchy.controllers for hierarchy in self.hierarchies)

    def create(self, pod_uid: str, container: str, attempt: int, memory_bytes: int | None, processes: int) -> list[Path]:
        """Create the groups of one run of a container, one in each hierarchy. Returns their folders. Raises OSError, ValueError."""
        for name in (pod_uid, container):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be part of the name of a control group")
        return [each.create(pod_uid, f"{container}-{attempt}", memory_bytes, processes) for each in self.hierarchies]

    def oom_kills(self, folders: Collection[Path]) -> int:
        """Return how many processes of a run's groups were killed for memory."""
        return sum(oom_kills(str(folder)) for folder in folders)

    def remove_run(self, pod_uid: str, container: str, attempt: int) -> None:
        """Remove the groups of a run that has ended, and the pod's if they were the last. Groups with processes are left."""
        for hierarchy in self.hierarchies:
            remove_group(str(hierarchy.base / pod_uid / f"{container}-{attempt}"))

    def remove_pod(self, pod_uid: str) -> None:
        """Remove all groups of a pod, wherever they are in the hierarchies. Groups with processes are left."""
        for hierarchy in self.hierarchies:
            for base in hierarchy.bases():
                _remove_tree(base / pod_uid)

    def remove_others(self, known_uids: Collection[str]) -> None:
        """Remove the groups of pods that this node does not know, and those of its earlier lives that are empty."""
        for hierarchy in self.hierarchies:
            for base in hierarchy.bases():
                for pod in _children(base):
                    if pod.name not in known_uids:
                        _remove_tree(pod)
                if base != hierarchy.base:
                    with contextlib.suppress(OSError):
                        base.rmdir()

    def close(self) -> None:
        """Remove the node's own groups, but for those with processes; supervisors may be about to remove theirs."""
        for hierarchy in self.hierarchies:
            _remove_tree(hierarchy.base)


def _own_groups() -> list[tuple[OwnCgroup, tuple[str, ...]]]:
    """Return this process's group in each hierarchy, with the controllers that are wanted of it."""
    found: dict[OwnCgroup, tuple[str, ...]] = {}
    for controller in CONTROLLERS:
        if (own := own_cgroup(controller)) is not None:
            found[own] = (*found.get(own, ()), controller)
    if not found:
        log.info("event=no_control_groups no hierarchy is mounted")
    return list(found.items())


def _hierarchy(own: OwnCgroup, controllers: tuple[str, ...], name: str) -> Hierarchy | None:
    """Return the node's groups in a hierarchy, or None if it has none of the controllers, or others' processes. Raises OSError."""
    parent = own.folder
    if own.version == 2:
        parent = own.folder.parent if own.folder.name == AGENT_LEAF else own.folder
        available = _words(parent / "cgroup.controllers")
        controllers = tuple(controller for controller in controllers if controller in available and controller != "cpu")
        if not controllers or not _delegate_own(parent, controllers, is_root=own.is_root):
            log.info("event=no_control_groups folder=%s has=%s", parent, ",".join(available))
            return None
        if "cpu" in available:
            with contextlib.suppress(OSError):  # some kernels refuse it as long as there are real-time processes
                _write(parent / "cgroup.subtree_control", "+cpu")
    found = Hierarchy(parent / name, own.hierarchy, own.version, controllers)
    found.base.mkdir(exist_ok=True)
    found.delegate(found.base)
    for file, weight in _WEIGHTS.items():
        found.write_if_present(found.base / file, weight)
    remove_group(str(found.create("probe", "probe", 64 * 1024 * 1024, 1000)))
    return found


def _words(path: Path) -> list[str]:
    return path.read_text("ascii").split()


def _delegate_own(folder: Path, controllers: tuple[str, ...], *, is_root: bool) -> bool:
    """Let children of a group of version 2 have limits, after moving processes out of it. Returns False if it is not ours alone."""
    missing = [name for name in controllers if name not in _words(folder / "cgroup.subtree_control")]
    if not missing:
        return True  # delegated by an earlier start, or by systemd
    if not is_root:
        pids = [int(word) for word in _words(folder / "cgroup.procs")]
        if others := [pid for pid in pids if not _is_descendant(pid, os.getpid())]:
            log.info("event=control_group_of_others folder=%s count=%d", folder, len(others))
            return False  # limits of the group would be theirs, too
        leaf = folder / AGENT_LEAF
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                _write(leaf / "cgroup.procs", pid)
    _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in missing))
    return True


def _is_descendant(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has ended, and is in nobody's way
            return True
    return pid == ancestor


def _write(path: Path, value: int | str) -> None:
    path.write_text(str(value), "ascii")


def _base_name(home: Path) -> str:
    return f"trainwright-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]}"


def _remove_tree(folder: Path) -> None:
    for child in _children(folder):
        _remove_tree(child)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _children(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, PermissionError):  # removed meanwhile, or of another user
        return []


@dataclass(frozen=True)
class Hierarchy:
    """The groups of one node in one hierarchy. `base` is the folder of this node's groups, below this process's own group."""

    base: Path
    mounted: Path
    """The folder where the hierarchy is mounted: earlier lives of this node may have run in another group of it."""
    version: int
    controllers: tuple[str, ...]

    def create(self, pod_uid: str, name: str, memory_bytes: int | None, processes: int) -> Path:
        """Create a group with the limits that this hierarchy has controllers for, without swap. Raises OSError."""
        pod = self.base / pod_uid
        folder = pod / name
        for attempt in range(_ATTEMPTS):
            try:
                pod.mkdir(exist_ok=True)
                self.delegate(pod)
                with contextlib.suppress(FileNotFoundError):
                    folder.rmdir()  # of a start that was interrupted, with its counts
                folder.mkdir()
                break
            except FileNotFoundError:  # the end of another run has removed the group of the pod meanwhile
                if attempt == _ATTEMPTS - 1:
                    raise
        if "pids" in self.controllers:
            _write(folder / "pids.max", processes)
        if "memory" in self.controllers and memory_bytes is not None:
            if self.version == 1:
                _write(folder / "memory.limit_in_bytes", memory_bytes)
                self.write_if_present(folder / "memory.memsw.limit_in_bytes", memory_bytes)
            else:
                _write(folder / "memory.max", memory_bytes)
                self.write_if_present(folder / "memory.swap.max", 0)
                self.write_if_present(folder / "memory.oom.group", 0)
        return folder

    def delegate(self, folder: Path) -> None:
        """Let the children of a group have limits."""
        if self.version == 2:
            _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in self.controllers))

    def bases(self) -> Iterator[Path]:
        """Find the folders of this node, also in groups of which earlier lives were a part."""
        return _find_folders(self.mounted, self.base.name)

    def write_if_present(self, path: Path, value: int) -> None:
        """Write a setting that not every version and kernel has. Raises OSError."""
        if path.exists():
            _write(path, value)


def _find_folders(top: Path, name: str) -> Iterator[Path]:
    folders = [top]
    for _ in range(_SEARCH_DEPTH):
        children = [child for folder in folders for child in _children(folder)]
        yield from (child for child in children if child.name == name)
        folders = children


def remove_groups_of(home: Path) -> None:
    """Remove the groups that a node with this home folder, which was killed, has left behind. Groups with processes are left."""
    for own, _ in _own_groups():
        for base in list(_find_folders(own.hierarchy, _base_name(home))):
            _remove_tree(base)


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
