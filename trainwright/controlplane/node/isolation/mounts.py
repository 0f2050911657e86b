"""What a container sees at one path: a folder or file of the host, or an own file system in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
