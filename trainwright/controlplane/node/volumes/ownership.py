"""Folders and files with the modes and groups that a kubelet gives them, as far as this process may set them.

Modes are open on purpose: the containers of a pod may run as different users. The folders above a pod's are private.
Source of the masks: `SetVolumeOwnership` in pkg/volume/volume_linux.go of Kubernetes.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

VOLUME_MODE = 0o777
"""Of the top folder of every volume."""
_READ_WRITE, _READ_ONLY, _TRAVERSE = 0o660, 0o440, 0o110


def make_folder(path: Path, mode: int, group: int | None = None) -> None:
    """Create a folder with exactly this mode, and group if given. One that exists is left as its users have made it.

    Missing parents are created with 0700. Raises OSError.
    """
    if path.is_dir():
        return
    _make_private(path.parent)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    temporary.chmod(mode)
    if group is not None:
        give_to_group(temporary, group)
    try:
        temporary.rename(path)  # at once, so that no interrupted start leaves a folder with another mode
    except OSError:
        temporary.rmdir()
        if not path.is_dir():  # neither did another thread create it
            raise


def give_to_group(root: Path, group: int, *, read_only: bool = False) -> None:
    """Give a file tree to a pod's fsGroup: its group, readable or writable by it, and folders that hand the group on."""
    for path in _tree(root):
        change_owner(path, group=group)
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        mask = _READ_ONLY if read_only else _READ_WRITE
        if stat.S_ISDIR(mode):
            mask |= stat.S_ISGID | _TRAVERSE
        path.chmod(stat.S_IMODE(mode) | mask)


def belongs_to_group(folder: Path, group: int) -> bool:
    """Whether a folder has already been given to the group, so that its content need not be walked (OnRootMismatch)."""
    found = folder.stat()
    wanted = _READ_WRITE | _TRAVERSE | stat.S_ISGID
    return found.st_gid == group and found.st_mode & wanted == wanted


def change_owner(path: Path, *, user: int = -1, group: int = -1) -> None:
    """Change the owner of a file or link where this process may. Only root may give files away.

    Elsewhere all processes of a pod are of one user, whom the modes serve already.
    """
    with contextlib.suppress(PermissionError):
        os.chown(path, user, group, follow_symlinks=False)


def _make_private(folder: Path) -> None:
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _tree(root: Path) -> Iterator[Path]:
    yield root
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(folder, name)
