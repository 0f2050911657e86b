"""Folders on a tmpfs of their own with a size: writing more fails, as in an emptyDir of medium Memory on a real node.

Needs the right to mount; without it a folder is as large as the machine's tmpfs, and the node evicts a pod that writes too much.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

from trainwright.controlplane.node.isolation.namespaces import NODEV, NOSUID, attach_mount, filesystem
from trainwright.controlplane.node.volumes.ownership import VOLUME_MODE, give_to_group

_DETACH, _NO_FOLLOW = 2, 8
"""For umount2: at once, even if it is in use; not through a link."""


def give_size(folder: Path, size: int, group: int | None) -> bool:
    """Mount a tmpfs of this many bytes on an empty folder. Returns whether this process may. Raises OSError for other reasons."""
    if sys.platform != "linux":
        return False
    try:
        tree = filesystem("tmpfs", {"source": "tmpfs", "size": str(size), "mode": f"{VOLUME_MODE:04o}"}, NOSUID | NODEV)
    except OSError:  # no right, or an old kernel
        return False
    place = -1
    try:
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        attach_mount(tree, place)
    finally:
        os.close(tree)
        if place >= 0:
            os.close(place)
    if group is not None:
        give_to_group(folder, group)
    return True


def take_back(folder: Path) -> None:
    """Unmount what is mounted on the folders in `folder`. What cannot be unmounted is left."""
    if sys.platform != "linux" or not folder.is_dir():
        return
    for path in folder.iterdir():
        if os.path.ismount(path):
            with contextlib.suppress(OSError):
                ctypes.CDLL(None).umount2(os.fsencode(path), _DETACH | _NO_FOLLOW)
