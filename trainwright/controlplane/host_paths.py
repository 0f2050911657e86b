"""Which folders of this machine a volume of a pod may be: never the cluster's home, which holds its keys and all Secrets.

Decided where a claim says which folder it is (admission), and again where a volume is mounted, by the real path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPTION = "--host-folder"
"""Of `trainwright up`: names a folder for `HostPathPolicy.folders`."""


class HostPathRefused(Exception):
    """A path that a volume may not be; the message says why."""


@dataclass(frozen=True)
class HostPathPolicy:
    """`claims` is the folder of the cluster's claims, in its home. All paths are absolute.

    Everyone who may write claims may choose folders below `folders`; the administrator any outside the home.
    """

    home: Path
    claims: Path
    folders: tuple[Path, ...] = ()

    def own_folder(self, namespace: str, name: str) -> Path:
        """Return the folder that a claim has unless it chooses another."""
        return self.claims / namespace / name

    def check_outside_home(self, path: Path) -> Path:
        """Return the real path of a volume. Raises HostPathRefused if that is, contains or is in the home; OSError."""
        real, own = _real(path), _real(self.home)
        home, found = _identity(own), _identity(real)
        contains = found is not None and found in _identities(own)
        if home is not None and (contains or home in _identities(real)):
            raise HostPathRefused(f"{path} is, contains or is in the home of the cluster, which cannot be a volume")
        return real

    def check_chosen(self, path: Path) -> Path:
        """Return the named folder below which a user who is no administrator has chosen a path. Raises HostPathRefused; OSError."""
        self.check_outside_home(path)
        for folder in self.folders:
            if self._is_below(path, folder):
                return folder
        raise HostPathRefused(
            f"{path} is not below a folder that the cluster's operator has named (trainwright up {OPTION} FOLDER)"
        )

    def check_mounted(self, path: Path, folder: str = "") -> Path:
        """Return the real path of a claim's chosen folder, which must be below `folder` if that is given.

        Raises HostPathRefused, also for a folder that is not named any more and for links out of a named one; OSError.
        """
        real = self.check_outside_home(path)
        if folder and Path(folder) not in self.folders:
            raise HostPathRefused(f"{path} is below {folder}, which the cluster's operator does not name any more ({OPTION})")
        named = [folder for folder in self.folders if path.is_relative_to(folder)]
        if named and not any(self._is_below(path, folder) for folder in self.folders):
            raise HostPathRefused(f"{path} leads out of {named[0]} by a symbolic link")
        return real

    @staticmethod
    def _is_below(path: Path, folder: Path) -> bool:
        return ".." not in path.parts and path.is_relative_to(folder) and _real(path).is_relative_to(_real(folder))


def _real(path: Path) -> Path:
    if "\0" in str(path):
        raise HostPathRefused("a path cannot contain a NUL character")
    return Path(os.path.realpath(path))  # unlike Path.resolve, not an error for links in a circle


def _identities(path: Path) -> Iterator[tuple[int, int]]:
    """Yield what identifies a path and the folders that contain it, however they are spelt or mounted. Missing ones are left out."""
    for each in (path, *path.parents):
        if (found := _identity(each)) is not None:
            yield found


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    return status.st_dev, status.st_ino
