"""Volumes in memory: emptyDirs of medium Memory, and files of Secrets. They are found again and removed by the UID of their pod.

They are folders on the machine's `/dev/shm`, which is open to everybody, so the top folder is trusted only if it is a folder of this
user that nobody else can enter. A volume with a size is a separate tmpfs: writing more fails, as on a real node. That needs the right
to mount; without it a folder is as large as the machine's tmpfs, and the node evicts a pod that writes too much.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trainwright.controlplane.host_paths import MEMORY_PREFIX, SHARED_MEMORY
from trainwright.controlplane.node.isolation.namespaces import NODEV, NOSUID, attach_mount, filesystem
from trainwright.controlplane.node.volumes.files import VOLUME_MODE, give_to_group, make_folder
from trainwright.controlplane.node.volumes.references import VolumeError

_DETACH, _NO_FOLLOW = 2, 8
"""For umount2: at once, even if it is in use; not through a link."""


@dataclass(frozen=True)
class MemoryFolders:
    """The folders of one node below `top`."""

    top: Path

    @classmethod
    def of_home(cls, home: Path, shared_memory: Path = SHARED_MEMORY) -> MemoryFolders:
        """Those of the node with this home; other homes and users on this machine have others. Without tmpfs, `home` has them."""
        if not shared_memory.is_dir():
            return cls(home / "memory")
        digest = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:16]
        return cls(shared_memory / f"{MEMORY_PREFIX}{os.geteuid()}-{digest}")

    @property
    def of_secrets(self) -> MemoryFolders:
        """The folders of the same node for files of Secrets and tokens: nothing of them is left when the node has stopped."""
        return MemoryFolders(self.top.with_name(f"{self.top.name}-secrets"))

    def make(self, pod_uid: str, volume: str, group: int | None, size: int | None = None) -> Path:
        """Return the folder of a volume, created if it is missing. `size` is in bytes. Raises VolumeError, OSError."""
        self.top.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_ours():
            raise VolumeError(f"{self.top} is not a folder that only this node's user can enter; remove it")
        folder = self._of_pod(pod_uid)
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / volume
        is_new = not path.is_dir()
        make_folder(path, VOLUME_MODE, group)
        if is_new and size is not None:
            give_size(path, size, group)
        return path

    def remove(self, pod_uid: str) -> None:
        """Remove the volumes of a pod whose processes have ended. Raises OSError for what cannot be removed."""
        if self._is_ours():
            _remove_pod(self._of_pod(pod_uid))

    def remove_others(self, known: Set[str]) -> None:
        """Remove the volumes of all pods but those with the UIDs `known`."""
        if not self._is_ours():
            return  # missing, or not only of this user
        for folder in self.top.iterdir():
            if folder.name not in known:
                _remove_pod(folder)

    def remove_all(self) -> None:
        """Remove everything, also the top folder."""
        self.remove_others(set())
        self.close()

    def close(self) -> None:
        """Leave nothing behind if no volume is left; with one, the folder is for the next life of the node."""
        with contextlib.suppress(OSError):
            self.top.rmdir()

    def _is_ours(self) -> bool:
        try:
            found = self.top.lstat()
        except FileNotFoundError:  # not made yet, or removed
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077 == 0

    def _of_pod(self, uid: str) -> Path:
        if not uid or uid in (".", "..") or "/" in uid:
            raise VolumeError(f"pod UID {uid!r} is no name of a folder")
        return self.top / uid


def _remove_pod(folder: Path) -> None:
    if not folder.is_symlink():
        take_back(folder)
    remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where containers have taken away their own right to write. Missing ones are fine."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return  # a link is removed, not followed
    for place, folders, _ in os.walk(folder):
        for path in (Path(place, name) for name in folders):
            with contextlib.suppress(FileNotFoundError):  # another thread may remove the same pod
                if not path.is_symlink() and path.stat().st_uid == os.geteuid():
                    path.chmod(0o700)
    shutil.rmtree(folder, onerror=_raise_unless_gone)


def _raise_unless_gone(
    _function: object, _path: object, failed: tuple[type[BaseException], BaseException, TracebackType]
) -> None:
    if not isinstance(failed[1], FileNotFoundError):
        raise failed[1]


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
