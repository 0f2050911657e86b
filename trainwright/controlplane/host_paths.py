"""Which folders of this machine volumes of pods may be, and whose they are: none in which clusters keep keys, Secrets and programs.

These are the homes of clusters, their folders in shared memory, the environments of images, and /proc, where the files of every
process of this user are. Decided where a claim says which folder it is (admission), and again where a volume is mounted, by the real
path. Shared folders, which every pod sees at their own paths, are the operator's choice, for code and data outside of volumes; a
cluster has nothing like it, and volumes are the portable way. Each claim gets a folder that no other claim has had: one of the same
name, created later, must not find the data of the first.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, controller_of, name_of, namespace_of, uid_of

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's, not a temporary file
MEMORY_PREFIX = "trainwright-"
"""Of the names of clusters' folders in SHARED_MEMORY."""
_PROCESSES = Path("/proc")
OPTION = "--host-folder"
"""Of `trainwright up`: names a folder for `HostPathPolicy.folders`."""
SHARED_FOLDERS = "TRAINWRIGHT_SHARED_FOLDERS"
"""An environment variable of the control plane: absolute paths, with colons between them."""
SET_ASIDE = ".deleted"
"""In the folder of all claims: the folders of claims that were deleted, as `NAMESPACE/NAME.UID`."""
_OWNER = ".{}.uid"
_EPHEMERAL = "ephemeral"
_lock = threading.Lock()
"""The node and the controller of claims may meet."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostPathPolicy:
    """`claims` is the folder of the cluster's claims, in its home; `own` are further folders that it keeps. All paths are absolute.

    Everyone who may write claims may choose folders below `folders`; the administrator any outside the home.
    """

    home: Path
    claims: Path
    folders: tuple[Path, ...] = ()
    own: tuple[Path, ...] = ()

    @classmethod
    def of_cluster(cls, home: Path, claims: Path, folders: tuple[Path, ...] = ()) -> HostPathPolicy:
        """Return the policy of the cluster with this home, which keeps environments beside it."""
        from trainwright.controlplane.environments import EnvironmentStore  # takes time to import, and most need no policy

        return cls(home, claims, folders, (EnvironmentStore.chosen().folder,))

    def own_folder(self, namespace: str, name: str) -> Path:
        """Return the folder that a claim has unless it chooses another."""
        return self.claims / namespace / name

    def check_outside_own(self, path: Path, *, may_contain: bool = False) -> Path:
        """Return the real path of a volume. Raises HostPathRefused if that shows what is a cluster's own; OSError.

        `may_contain`: what the node hides in containers may be in it.
        """
        real = _real_path(path)
        memory = sorted(SHARED_MEMORY.glob(f"{MEMORY_PREFIX}*"))
        for own in (self.home, *self.own, *memory, _PROCESSES):
            place = _real_path(own)
            is_hidden = may_contain and own in (self.home, *self.own)
            if (is_inside := _is_in(real, place)) or (_is_in(place, real) and not is_hidden):
                what = "the home of the cluster" if own == self.home else f"{own}, which is not for pods"
                raise HostPathRefused(f"{path} cannot be a volume: it {'is in' if is_inside else 'contains'} {what}")
        for each in (real, *real.parents):
            if (each / "credentials" / "admin.token").exists():
                raise HostPathRefused(f"{path} cannot be a volume: it is in the home of another cluster")
            if each.parent == _real_path(SHARED_MEMORY) and each.name.startswith(MEMORY_PREFIX):
                raise HostPathRefused(f"{path} cannot be a volume: it is in the memory of a cluster")
        if _is_in(SHARED_MEMORY, real):  # clusters may make their folders there at any time
            raise HostPathRefused(f"{path} cannot be a volume: files of Secrets are in {SHARED_MEMORY}; mount a folder in that")
        return real

    def check_chosen(self, path: Path) -> Path:
        """Return the named folder below which a user who is no administrator has chosen a path. Raises HostPathRefused; OSError."""
        self.check_outside_own(path)
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
        real = self.check_outside_own(path)
        if folder and Path(folder) not in self.folders:
            raise HostPathRefused(f"{path} is below {folder}, which the cluster's operator does not name any more ({OPTION})")
        named = [folder for folder in self.folders if path.is_relative_to(folder)]
        if named and not any(self._is_below(path, folder) for folder in self.folders):
            raise HostPathRefused(f"{path} leads out of {named[0]} by a symbolic link")
        return real

    @staticmethod
    def _is_below(path: Path, folder: Path) -> bool:
        return ".." not in path.parts and path.is_relative_to(folder) and _real_path(path).is_relative_to(_real_path(folder))


def _real_path(path: Path) -> Path:
    if "\0" in str(path):
        raise HostPathRefused("a path cannot contain a NUL character")
    return Path(os.path.realpath(path))  # unlike Path.resolve, not an error for links in a circle


def _is_in(path: Path, folder: Path) -> bool:
    """Whether a real path is a folder or in it, by what they are, not by their names."""
    found = _identity(folder)
    return path.is_relative_to(folder) if found is None else found in _identities(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    return status.st_dev, status.st_ino


def _identities(path: Path) -> Iterator[tuple[int, int]]:
    """Yield what identifies a path and the folders that contain it, however they are spelt or mounted. Missing ones are left out."""
    for each in (path, *path.parents):
        if (found := _identity(each)) is not None:
            yield found


class HostPathRefused(Exception):
    """A path that a volume may not be; the message says why."""


def shared_folders(policy: HostPathPolicy) -> tuple[Path, ...]:
    """Return the real paths of the folders of SHARED_FOLDERS. Those that cannot be shared are left out with a warning.

    The home of the cluster stays hidden in a folder that contains it.
    """
    for problem in shared_folder_problems(policy):
        log.warning("event=shared_folder_left_out %s", problem)
    return tuple(path.resolve() for path in _chosen() if not _shared_problem(path, policy))


def _chosen() -> list[Path]:
    return [Path(path) for path in os.environ.get(SHARED_FOLDERS, "").split(os.pathsep) if path]


def _shared_problem(path: Path, policy: HostPathPolicy) -> str:
    if not path.is_absolute() or not path.is_dir():
        return "it is not the absolute path of a folder"
    if Path.home().resolve().is_relative_to(path.resolve()):
        return "it is or contains your home folder; name folders in it"
    try:
        policy.check_outside_own(path, may_contain=True)
    except (HostPathRefused, OSError) as error:
        return str(error)
    return ""


def shared_folder_problems(policy: HostPathPolicy) -> list[str]:
    """Return why folders of SHARED_FOLDERS are not shared, one line for each."""
    return [
        f"{SHARED_FOLDERS}: {path} is not shared: {problem}" for path in _chosen() if (problem := _shared_problem(path, policy))
    ]


def take_folder(claim: Obj, folder: Path, claims: Path) -> None:
    """Record whose folder this is before it is used; set the folder of another claim of this name aside. Raises OSError.

    The uid of the claim that a folder belongs to is kept beside it. A folder without such a record was put there by the operator, for
    the claim of that name. The folder of an earlier claim is set aside and never deleted, unless it was an ephemeral volume of a pod.
    """
    record = folder.parent / _OWNER.format(folder.name)
    with _lock:
        owner, _, was_ephemeral = _recorded(record).partition(" ")
        if owner == uid_of(claim):
            return
        if was_ephemeral and folder.exists():
            shutil.rmtree(folder)
        elif owner and folder.exists():
            kept = claims / SET_ASIDE / namespace_of(claim) / f"{name_of(claim)}.{owner}"
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.rename(kept)
            log.warning("event=claim_folder_set_aside claim=%s/%s folder=%s", namespace_of(claim), name_of(claim), kept)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = record.with_name(f"{record.name}.new")
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"{uid_of(claim)} {_EPHEMERAL}" if _is_ephemeral(claim) else uid_of(claim))
        os.replace(temporary, record)


def _recorded(record: Path) -> str:
    try:
        return record.read_text("utf-8")
    except FileNotFoundError:  # never mounted
        return ""


def _is_ephemeral(claim: Obj) -> bool:
    """Whether the claim is a pod's generic ephemeral volume, whose data end with the pod."""
    owner = controller_of(claim)
    return owner is not None and owner["kind"] == POD.kind
