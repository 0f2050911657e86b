"""Evicts a pod that uses more local storage than it may: an emptyDir's sizeLimit, or its limit of ephemeral storage.

Source: localStorageEviction of the kubelet, with its words. The verdict is kept in a file: it must outlive this node's process.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, canonical, parse_quantity
from trainwright.controlplane.node.container_context import NodeServices
from trainwright.controlplane.node.lifecycle.container_state import Role, containers_of
from trainwright.controlplane.node.lifecycle.decision import EVICTED_REASON
from trainwright.controlplane.node.lifecycle.events import PodEvent

PERIOD_SECONDS = 10.0
_FILE = "evicted"


class Eviction:
    """The eviction of one pod, whose files are in `folder`."""

    def __init__(self, pod: Obj, folder: Path, services: NodeServices):
        self._pod, self._folder, self._services = pod, folder, services
        try:
            self._message = (folder / _FILE).read_text("utf-8")
        except FileNotFoundError:  # it was not evicted
            self._message = ""
        self._checked = -PERIOD_SECONDS
        self._is_announced = bool(self._message)
        self.has_limits = pod_storage_limit(pod) is not None or any(
            (volume.get("emptyDir") or {}).get("sizeLimit") for volume in pod["spec"].get("volumes") or []
        )
        """Whether the pod's use of local storage has to be watched."""

    def message(self, now: float, *, is_running: bool) -> str:
        """Return why the pod is evicted, or an empty string. `now` is in monotonic seconds; looks at most every 10 s."""
        if not self._message and is_running and self.has_limits and now - self._checked >= PERIOD_SECONDS:
            self._checked = now
            self._message = self._excess()
            if self._message:  # kept in a file: it must outlive this process
                temporary = self._folder / f"{_FILE}.new"
                temporary.write_text(self._message, "utf-8")
                os.replace(temporary, self._folder / _FILE)
        return self._message

    def announce(self) -> None:
        """Record the event of the eviction, once."""
        if self._message and not self._is_announced:
            self._is_announced = True
            self._services.events.record(self._pod, PodEvent("Warning", EVICTED_REASON, self._message))

    def _excess(self) -> str:
        """Return what is exceeded: an emptyDir's limit, that of the pod, or that of a container; in the kubelet's order."""
        in_volumes = 0
        for volume in self._pod["spec"].get("volumes") or []:
            if (empty := volume.get("emptyDir")) is None or empty.get("medium") == "Memory":
                continue  # not on the node's disk: a tmpfs has its own limit
            used = folder_bytes(self._folder / "volumes" / volume["name"])
            in_volumes += used
            limit = empty.get("sizeLimit")
            if limit and used > parse_quantity(limit).ceiling() > 0:
                return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{canonical(limit)}". '
        used_by = {spec["name"]: folder_bytes(self._folder / "containers" / spec["name"]) for spec, _ in containers_of(self._pod)}
        total = pod_storage_limit(self._pod)
        if total is not None and sum(used_by.values()) + in_volumes > total.ceiling():
            return f"Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
        for container in self._pod["spec"].get("containers") or []:
            own = _limit(container)
            if own is not None and used_by[container["name"]] > own.ceiling() > 0:
                return f'Container {container["name"]} exceeded its local ephemeral storage limit "{own}". '
        return ""


def pod_storage_limit(pod: Obj) -> Quantity | None:
    """Return how much local storage the containers of a pod may use together, or None if none of them has a limit.

    That is the sum of those that run beside each other, or more where an init container alone may have more.
    Source: `PodLimits` of Kubernetes; containers without a limit add nothing to it.
    """
    sidecars = together = largest = None
    for container, role in containers_of(pod):
        limit = _limit(container)
        if role is Role.INIT:
            largest = _larger(largest, _sum(limit, sidecars))
        else:
            together = _sum(together, limit)
            sidecars = _sum(sidecars, limit) if role is Role.SIDECAR else sidecars
    return _larger(together, largest)


def _sum(one: Quantity | None, other: Quantity | None) -> Quantity | None:
    return one + other if one is not None and other is not None else one if other is None else other


def _larger(one: Quantity | None, other: Quantity | None) -> Quantity | None:
    return max(one, other) if one is not None and other is not None else one if other is None else other


def folder_bytes(folder: Path) -> int:
    """Return how much disk the files below a folder take, without following links. Files may vanish meanwhile."""
    total, pending = 0, [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += _entry_bytes(entry, pending)
        except OSError:  # removed, or not to be read: what cannot be seen is not counted
            continue
    return total


def _entry_bytes(entry: os.DirEntry[str], pending: list[Path]) -> int:
    try:
        if entry.is_dir(follow_symlinks=False):
            pending.append(Path(entry.path))
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:  # removed meanwhile
        return 0


def _limit(container: Obj) -> Quantity | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("ephemeral-storage")
    return None if limit is None else parse_quantity(limit)
