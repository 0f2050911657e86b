"""Writes files and folders of volumes as a kubelet does: with its modes and groups, and all files of one volume at once.

`..data` links to a folder named by the time; each visible name links into `..data`; replacing that one link swaps the content.
Modes are open on purpose: the containers of a pod may run as different users. The folders above a pod's are private.
Sources: pkg/volume/util/atomic_writer.go, and `SetVolumeOwnership` in pkg/volume/volume_linux.go of Kubernetes.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import posixpath
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainwright.controlplane.node.volumes.references import VolumeError

DATA = "..data"
_DATA_NEW = "..data_tmp"
_FOLDER_MODE = 0o755
_LONGEST_PATH = 4096
VOLUME_MODE = 0o777
"""Of the top folder of every volume."""
_READ_WRITE, _READ_ONLY, _TRAVERSE = 0o660, 0o440, 0o110
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, on 64-bit machines."""
TOP_OF_HIERARCHIES = 0x20000
_FLAGS_FORMAT = "l"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VolumeFile:
    """`mode` has all permission bits; `user` is the owner, if not the node's."""

    content: bytes
    mode: int
    user: int | None = None


def write_files(root: Path, files: Mapping[str, VolumeFile], group: int | None = None) -> bool:
    """Make the existing folder `root` show exactly these files, by relative path. Returns whether anything was written.

    Only one caller at a time for one folder; readers need no care. Raises VolumeError for a path outside of the volume, OSError.
    """
    wanted = {_checked_path(path): file for path, file in files.items()}
    for path in wanted:
        if below := [str(parent) for parent in Path(path).parents if str(parent) in wanted]:
            raise VolumeError(f"invalid path: {path} is below {below[0]}, which is a file of the same volume")
    current = root / DATA
    if _contents(current) == {path: file.content for path, file in wanted.items()}:
        _show(root, wanted)
        return False  # the content is the same: programs that watch the files see no change
    folder = Path(tempfile.mkdtemp(dir=root, prefix=datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.")))
    folder.chmod(_FOLDER_MODE)
    for path, file in wanted.items():
        _write(folder, path, file)
    if group is not None:
        give_to_group(folder, group, read_only=True)
    _replace_link(current, folder.name, root / _DATA_NEW)
    _show(root, wanted)
    return True


def _checked_path(path: str) -> str:
    """Return the path in its shortest form. Raises VolumeError, with the kubelet's words, if it is not inside of the volume."""
    if path.startswith("/"):
        raise VolumeError(f"invalid path: must be relative path: {path}")
    if ".." in path.split("/"):
        raise VolumeError(f"invalid path: must not contain '..': {path}")
    if path.startswith(".."):
        raise VolumeError(f"invalid path: must not start with '..': {path}")
    clean = posixpath.normpath(path) if path else "."
    if clean == "." or "\0" in path:
        raise VolumeError(f"invalid path: must name a file: {path!r}")
    if len(clean) > _LONGEST_PATH:
        raise VolumeError(f"invalid path: must be less than or equal to {_LONGEST_PATH} characters")
    return clean


def _contents(folder: Path) -> dict[str, bytes] | None:
    """Return the files that are there now, or None for none at all, or files of a mode that hides them from this process."""
    if not folder.is_dir():
        return None  # not written yet
    top = folder.resolve()
    try:
        return {
            str(Path(place, name).relative_to(top)): Path(place, name).read_bytes()
            for place, _, names in os.walk(top)
            for name in names
        }
    except PermissionError:  # a container has changed the modes: written again
        return None


def _show(root: Path, paths: Mapping[str, VolumeFile]) -> None:
    """Link the first part of each path into `..data`, and remove all else: names that are gone, and earlier or unfinished folders."""
    current = os.readlink(root / DATA)
    visible = {Path(path).parts[0] for path in paths}
    for name in visible:
        link, target = root / name, f"{DATA}/{name}"
        if not (link.is_symlink() and os.readlink(link) == target):
            _remove(link)
            _replace_link(link, target, root / f"..{name}_tmp")
    for entry in root.iterdir():
        if entry.name not in {*visible, current, DATA}:
            _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _replace_link(link: Path, target: str, temporary: Path) -> None:
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _write(folder: Path, path: str, file: VolumeFile) -> None:
    parent = folder
    for part in Path(path).parent.parts:
        parent /= part
        if not parent.is_dir():
            parent.mkdir()
            parent.chmod(_FOLDER_MODE)
    target = folder / path
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(file.content)
        os.fchmod(descriptor, file.mode)
    if file.user is not None:
        change_owner(target, user=file.user)


def make_folder(path: Path, mode: int, group: int | None = None) -> None:
    """Create a folder with exactly this mode, and group if given. One that exists is left as its users have made it.

    Missing parents are created with 0700. Raises OSError.
    """
    if path.is_dir():
        return  # its modes are the business of its containers
    for missing in reversed([each for each in (path.parent, *path.parent.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
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
            continue  # its target has its own mode, and may be outside of the volume
        mask = _READ_ONLY if read_only else _READ_WRITE
        if stat.S_ISDIR(mode):
            mask |= stat.S_ISGID | _TRAVERSE
        path.chmod(stat.S_IMODE(mode) | mask)


def _tree(root: Path) -> Iterator[Path]:
    yield root
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(folder, name)


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


def spread_folders(folder: Path) -> bool:
    """Mark an existing folder for ext4 as one whose folders are unrelated, to be spread over the disk.

    The files of pods come and go. ext4 without a journal, as on many virtual machines, does not use the number of a file again for
    some minutes, and looks past all of them when it makes the next one in the same place: a pod would start the more slowly the more
    have ended shortly before. Source: `recently_deleted` and `find_group_orlov` in fs/ext4/ialloc.c; the flag is T of chattr(1).
    Returns False where the file system has no such mark, which does no harm.
    """
    if sys.platform != "linux":
        return False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = folder_flags(descriptor)
        if not flags & TOP_OF_HIERARCHIES:
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack(_FLAGS_FORMAT, flags | TOP_OF_HIERARCHIES))
    except OSError as error:
        log.debug("event=folder_not_marked path=%s error=%s", folder, error)
        return False
    finally:
        os.close(descriptor)
    return True


def folder_flags(descriptor: int) -> int:
    """Return the flags of an open folder. Raises OSError where the file system has none."""
    return int(struct.unpack(_FLAGS_FORMAT, fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack(_FLAGS_FORMAT, 0)))[0])
