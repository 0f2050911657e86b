"""Enforces memory limits by control groups (cgroups), version 1 or 2, where this user may create them below its own.

One group per run of a container: OWN/trainwright-HASH/POD_UID/CONTAINER-ATTEMPT. HASH is of the node's home folder, so that several
nodes of one user do not touch each other's groups. Source: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
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

from trainwright.controlplane.node.limits import oom_kills as counts
from trainwright.controlplane.node.limits.own_cgroup import OwnCgroup, own_memory_cgroup

AGENT_LEAF = "trainwright-agent"
"""With version 2, a group with limited children must not have processes of its own: they are moved into this child."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SEARCH_DEPTH = 8
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryCgroups:
    """The memory control groups of one node. `base` is the folder of this node's groups, below this process's own group."""

    base: Path
    hierarchy: Path
    """The folder where the hierarchy is mounted: earlier lives of this node may have run in another group of it."""
    version: int

    @classmethod
    def find(cls, home: Path) -> MemoryCgroups | None:
        """Return the groups of the node with this home folder, or None where this user may not limit memory. Linux only.

        With version 2, moves this process and its children into a child of its own group, if no others are in that group.
        """
        own = own_memory_cgroup()
        if own is None:
            log.info("no memory control group is mounted")
            return None
        name = f"trainwright-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]}"
        try:
            parent = own.folder if own.version == 1 else _delegated_parent(own)
            if parent is None:
                return None
            found = cls(parent / name, own.hierarchy, own.version)
            found.base.mkdir(exist_ok=True)
            found._delegate(found.base)
            found.remove(found.create("probe", "probe", 0, 64 * 1024 * 1024))
        except OSError as error:
            log.info("memory control groups cannot be created folder=%s error=%s", own.folder, error)
            return None
        return found

    def create(self, pod_uid: str, container: str, attempt: int, limit_bytes: int) -> Path:
        """Create the group of one run of a container, without swap. Returns its folder. Raises OSError, ValueError."""
        for name in (pod_uid, container):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be part of the name of a control group")
        pod = self.base / pod_uid
        pod.mkdir(exist_ok=True)
        self._delegate(pod)
        folder = pod / f"{container}-{attempt}"
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()  # of a start that was interrupted, with its counts
        folder.mkdir()
        if self.version == 1:
            _write(folder / "memory.limit_in_bytes", limit_bytes)
            self._write_if_present(folder / "memory.memsw.limit_in_bytes", limit_bytes)
        else:
            _write(folder / "memory.max", limit_bytes)
            self._write_if_present(folder / "memory.swap.max", 0)
            self._write_if_present(folder / "memory.oom.group", 0)
        return folder

    def oom_kills(self, folder: Path) -> int:
        """Return how many processes of a group were killed for memory."""
        return counts.oom_kills(str(folder))

    def remove(self, folder: Path) -> None:
        """Remove the group of a run that has ended, and the pod's if it was the last. Groups with processes are left."""
        for each in (folder, folder.parent):
            with contextlib.suppress(OSError):
                each.rmdir()

    def remove_run(self, pod_uid: str, container: str, attempt: int) -> None:
        """Remove the group of a run that has ended, if it had one."""
        self.remove(self.base / pod_uid / f"{container}-{attempt}")

    def remove_pod(self, pod_uid: str) -> None:
        """Remove all groups of a pod, wherever they are in the hierarchy. Groups with processes are left."""
        for base in self._bases():
            _remove_tree(base / pod_uid)

    def remove_others(self, known_uids: Collection[str]) -> None:
        """Remove the groups of pods that this node does not know, and those of its earlier lives that are empty."""
        for base in self._bases():
            for pod in _children(base):
                if pod.name not in known_uids:
                    _remove_tree(pod)
            if base != self.base:
                with contextlib.suppress(OSError):
                    base.rmdir()

    def close(self) -> None:
        """Remove the node's own group if no pod has one."""
        with contextlib.suppress(OSError):
            self.base.rmdir()

    def _bases(self) -> Iterator[Path]:
        """Find the folders of this node, also in groups of which earlier lives were a part."""
        folders = [self.hierarchy]
        for _ in range(_SEARCH_DEPTH):
            children = [child for folder in folders for child in _children(folder)]
            yield from (child for child in children if child.name == self.base.name)
            folders = children

    def _delegate(self, folder: Path) -> None:
        if self.version == 2:
            _write(folder / "cgroup.subtree_control", "+memory")

    def _write_if_present(self, path: Path, value: int) -> None:
        if path.exists():
            _write(path, value)


def _delegated_parent(own: OwnCgroup) -> Path | None:
    """Return a group of version 2 whose children may have limits, after moving processes out of it; None if it is not ours alone."""
    folder = own.folder.parent if own.folder.name == AGENT_LEAF else own.folder
    if "memory" not in _words(folder / "cgroup.controllers"):
        log.info("the control group has no memory controller folder=%s", folder)
        return None
    if "memory" in _words(folder / "cgroup.subtree_control"):
        return folder
    if not own.is_root:
        pids = [int(word) for word in _words(folder / "cgroup.procs")]
        if others := [pid for pid in pids if not _is_descendant(pid, os.getpid())]:
            log.info("the control group has processes of others folder=%s count=%d", folder, len(others))
            return None
        _move_into(folder / AGENT_LEAF, pids)
    _write(folder / "cgroup.subtree_control", "+memory")
    return folder


def _move_into(leaf: Path, pids: list[int]) -> None:
    leaf.mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            _write(leaf / "cgroup.procs", pid)


def _is_descendant(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has ended, and is in nobody's way
            return True
    return pid == ancestor


def _remove_tree(folder: Path) -> None:
    for child in _children(folder):
        _remove_tree(child)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _children(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, PermissionError):
        return []


def _words(path: Path) -> list[str]:
    return path.read_text("ascii").split()


def _write(path: Path, value: int | str) -> None:
    path.write_text(str(value), "ascii")
