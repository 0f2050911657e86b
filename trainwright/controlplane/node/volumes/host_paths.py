"""hostPath volumes: the checks of their types, in the words of a kubelet (pkg/volume/hostpath/host_path.go)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.host_paths import HostPathPolicy, HostPathRefused
from trainwright.controlplane.node.volumes.errors import VolumeError

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def host_path(source: Obj, policy: HostPathPolicy) -> Path:
    """Return the real path of a hostPath volume, created if its type says so. Without a type a missing path becomes a folder.

    Raises VolumeError if the path is not of its type, cannot be created, or would show what is a cluster's own.
    """
    path, kind = Path(source["path"]), source.get("type") or ""
    if ".." in path.parts:
        raise VolumeError(f"invalid HostPath `{path}`: must not contain '..'")
    if kind and kind not in _CHECKS:
        raise VolumeError(f"{kind} is an invalid volume type")
    try:
        policy.check_outside_own(path)
        if not path.exists():
            _create(path, kind)
        if kind and not _is_a(path, kind):
            raise VolumeError(f"hostPath type check failed: {path} is not {_CHECKS[kind][1]}")
        return policy.check_outside_own(path)  # again, because what was checked may have been replaced by a link
    except HostPathRefused as error:
        raise VolumeError(f"hostPath {error}") from error
    except OSError as error:
        raise VolumeError(f"hostPath {path} cannot be used: {error.strerror}") from error


def _create(path: Path, kind: str) -> None:
    if kind in ("", "DirectoryOrCreate"):  # without a type it is the container runtime that creates it
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _is_a(path: Path, kind: str) -> bool:
    try:
        return _CHECKS[kind][0](path.stat().st_mode)
    except FileNotFoundError:
        return False
