"""Writes the files of ConfigMap, Secret, projected and downward API volumes as a kubelet does: all of them change at once.

`..data` links to a folder named by the time; each visible name links into `..data`; replacing that one link swaps the content.
Source: pkg/volume/util/atomic_writer.go of Kubernetes.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainwright.controlplane.node.volumes.errors import VolumeError
from trainwright.controlplane.node.volumes.ownership import change_owner, give_to_group

DATA = "..data"
_DATA_NEW = "..data_tmp"
_FOLDER_MODE = 0o755
_LONGEST_PATH = 4096


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
    _check_no_file_is_a_folder(wanted)
    current = root / DATA
    if _contents(current) == {path: file.content for path, file in wanted.items()}:
        _show(root, wanted)
        return False
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


def _check_no_file_is_a_folder(paths: Mapping[str, VolumeFile]) -> None:
    for path in paths:
        for parent in Path(path).parents:
            if str(parent) in paths:
                raise VolumeError(f"invalid path: {path} is below {parent}, which is a file of the same volume")


def _contents(folder: Path) -> dict[str, bytes] | None:
    """Return the files that are there now, or None for none at all, or files of a mode that hides them from this process."""
    if not folder.is_dir():
        return None
    top = folder.resolve()
    try:
        return {
            str(Path(place, name).relative_to(top)): Path(place, name).read_bytes()
            for place, _, names in os.walk(top)
            for name in names
        }
    except PermissionError:
        return None


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


def _replace_link(link: Path, target: str, temporary: Path) -> None:
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
