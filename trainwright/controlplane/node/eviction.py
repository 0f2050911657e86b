"""Evicts a pod that uses more local storage than it may: an emptyDir's sizeLimit, or its limit of ephemeral storage.

Source: localStorageEviction of the kubelet, with its words. The verdict is kept in a file: it must outlive this node's process.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.api.quantities import parse_quantity
from trainwright.controlplane.node.container_context import NodeServices
from trainwright.controlplane.node.lifecycle.ending import EVICTED_REASON
from trainwright.controlplane.node.lifecycle.events import PodEvent

PERIOD_SECONDS = 10.0
_FILE = "evicted"


class Eviction:
    """The eviction of one pod, whose files are in `folder`."""

    def __init__(self, pod: Obj, folder: Path, services: NodeServices):
        self._pod, self._folder, self._services = pod, folder, services
        self._message = self._stored()
        self._checked = -PERIOD_SECONDS
        self._is_announced = bool(self._message)

    def message(self, now: float, *, is_running: bool) -> str:
        """Return why the pod is evicted, or an empty string. `now` is in monotonic seconds; looks at most every 10 s."""
        if not self._message and is_running and self._has_limits() and now - self._checked >= PERIOD_SECONDS:
            self._checked = now
            self._message = self._excess()
            if self._message:
                self._store()
        return self._message

    def announce(self) -> None:
        """Record the event of the eviction, once."""
        if self._message and not self._is_announced:
            self._is_announced = True
            self._services.events.record(self._pod, PodEvent("Warning", EVICTED_REASON, self._message))

    def _has_limits(self) -> bool:
        spec = self._pod["spec"]
        volumes = any((volume.get("emptyDir") or {}).get("sizeLimit") for volume in spec.get("volumes") or [])
        return volumes or any(_limit(container) is not None for container in spec.get("containers") or [])

    def _excess(self) -> str:
        spec = self._pod["spec"]
        used_by_volumes = 0
        for volume in spec.get("volumes") or []:
            if (empty := volume.get("emptyDir")) is None or empty.get("medium") == "Memory":
                continue
            used = folder_bytes(self._folder / "volumes" / volume["name"])
            used_by_volumes += used
            limit = empty.get("sizeLimit")
            if limit and used > parse_quantity(limit).ceiling() > 0:
                return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". '
        limits = {container["name"]: _limit(container) for container in spec.get("containers") or []}
        used_by = {name: folder_bytes(self._folder / "containers" / name) for name in limits}
        if all(limit is not None for limit in limits.values()) and limits:
            total = sum(limit for limit in limits.values() if limit is not None)
            if sum(used_by.values()) + used_by_volumes > total:
                return f"Pod ephemeral local storage usage exceeds the total limit of containers {_binary(total)}. "
        for container in spec.get("containers") or []:
            limit = limits[container["name"]]
            if limit is not None and used_by[container["name"]] > limit:
                written = container["resources"]["limits"]["ephemeral-storage"]
                return f'Container {container["name"]} exceeded its local ephemeral storage limit "{written}". '
        return ""

    def _stored(self) -> str:
        try:
            return (self._folder / _FILE).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def _store(self) -> None:
        temporary = self._folder / f"{_FILE}.new"
        temporary.write_text(self._message, "utf-8")
        os.replace(temporary, self._folder / _FILE)


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
    except OSError:
        return 0


def _limit(container: Obj) -> int | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("ephemeral-storage")
    return None if limit is None else parse_quantity(limit).ceiling()


def _binary(amount: int) -> str:
    """Format bytes as a quantity with the largest binary suffix that divides it."""
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{suffix}"
    return str(amount)
