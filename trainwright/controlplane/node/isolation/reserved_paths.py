"""Paths of a container that belong to the node: no volume may cover them. Standard library only: a container's supervisor loads this.

Where a volume covered /proc, /sys or /dev, programs that rely on the kernel's files would be deceived.
"""

from __future__ import annotations

KERNEL_FILE_SYSTEMS = frozenset(
    ("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "efivarfs", "pstore")
)
"""File systems whose files are settings of the machine: a container that sees them by a volume may not write them."""
_SHM = "/dev/shm"  # noqa: S108  (a path of the container)


def is_reserved(target: str, source: str | None, *, is_volume: bool) -> bool:
    """Whether nothing may be mounted at `target`, an absolute path without `..` and links.

    Below /dev a pod's volumes may be /dev/shm, and `source`s that are devices of the host; the node's own files may be anywhere.
    """
    if target == "/dev" or any(is_in(target, folder) for folder in ("/proc", "/sys")):
        return True
    return is_volume and is_in(target, "/dev") and not is_in(target, _SHM) and not (source and names_devices(source))


def names_devices(source: str) -> bool:
    """Whether a path of the host is in its /dev, so that a pod that mounts it wants the devices."""
    return is_in(source, "/dev") and not is_in(source, _SHM)


def is_in(path: str, folder: str) -> bool:
    """Whether a clean path is that of a folder, or of something below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
