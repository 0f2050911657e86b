"""Scratch folders next to a target. A later process resumes in the scratch folder of a killed one, or removes it.

Their names are known beforehand, and others may write to the volume or to `/tmp`. So a folder is used only if it is one that this
user made, private from the beginning, and contains no link that would lead a write elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.flock import LocksNotSupported
from trainwright.storage.errors import StorageError, UnsafeFile
from trainwright.storage.locks import try_lock_file

log = logging.getLogger(__name__)
_MAX_PROCESSES = 64
"""Maximum number of processes that prepare the same target concurrently; even two are a mistake."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK, _WORK = "lock", "work"


@contextlib.contextmanager
def scratch_folder(target: Path, purpose: str, *, keep: bool = False) -> Iterator[Path]:
    """Yield a folder on the disk of `target` that only this process uses.

    It keeps the work of an earlier process of the same user with the same `purpose` that was killed or ended in a StorageError
    (a full disk, a lost connection), with `keep` in any error, an interruption included. Folders with another purpose are
    removed. It is removed when the block ends in any other way, or has left nothing in it. Raises StorageError, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{_short(target.name)}-"  # a hash, because the name may already have the maximum length
    private = _PrivateFolders.of(target.parent)
    _clear_abandoned(private, stem, keep=f"{stem}{_short(purpose)}.")
    folder, descriptor = _acquire_folder(private, f"{stem}{_short(purpose)}")
    work = folder / _WORK
    try:
        yield work
    except BaseException as error:
        is_kept = keep or isinstance(error, StorageError)
        if not (is_kept and work.is_dir() and any(work.iterdir())):  # there is nothing that a later process could use
            _remove(folder, stem)
        raise
    else:
        _remove(folder, stem)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@dataclass(frozen=True)
class _PrivateFolders:
    """How a private folder of this user looks in `parent`: what a folder shows that was just made there.

    That is this user and mode 0700, except on volumes that map users (NFS with all_squash) or have no modes (SMB).
    """

    parent: Path
    owner: int
    mode: int

    @classmethod
    def of(cls, parent: Path) -> _PrivateFolders:
        """Make and remove a folder in `parent`. Raises OSError."""
        made = tempfile.mkdtemp(prefix=".trainwright-", dir=parent)
        try:
            shown = os.lstat(made)
            return cls(parent, shown.st_uid, shown.st_mode)
        finally:
            os.rmdir(made)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[int | None]:
        """Yield a descriptor of the folder, or None if it is not a private one of this user, but a link, for example."""
        try:
            descriptor = os.open(self.parent / name, _FOLDER)
        except FileNotFoundError:
            raise
        except OSError:  # a link, or a folder of another user
            yield None
            return
        try:
            shown = os.fstat(descriptor)
            yield descriptor if (shown.st_uid, shown.st_mode) == (self.owner, self.mode) else None
        finally:
            os.close(descriptor)

    def is_owned(self, name: str) -> bool:
        """Whether this user made the folder, private or not: then it may be removed, which follows no links."""
        shown = os.lstat(self.parent / name)
        return stat.S_ISDIR(shown.st_mode) and shown.st_uid == self.owner


def _acquire_folder(private: _PrivateFolders, name: str) -> tuple[Path, int | None]:
    """Lock and return the first folder NAME.NUMBER that no other process uses, with an empty or trustworthy folder `work`."""
    refused = ""
    for number in range(_MAX_PROCESSES):
        folder = private.parent / f"{name}.{number}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError), private.open(folder.name) as directory:  # its holder has just removed it
            if directory is None:
                refused = f"; {folder} is not a private folder of this user and is not used: remove it"
                log.warning("event=scratch_folder_refused path=%s reason=%r", folder, "not a private folder of this user")
                continue
            try:
                descriptor = try_lock_file(Path(_LOCK), directory=directory)
            except LocksNotSupported:  # a folder that no other process can find needs none
                own = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=private.parent))
                (own / _WORK).mkdir()
                return own, None
            except UnsafeFile:  # a link or a special file, which would lead the lock elsewhere
                refused = f"; {folder / _LOCK} is not a regular file: remove {folder}"
                continue
            if descriptor is not None:
                try:
                    _make_work_folder(directory, folder)
                except BaseException:  # the lock of a folder that is not used would stay
                    os.close(descriptor)
                    raise
                return folder, descriptor
    raise StorageError(f"{private.parent}: {_MAX_PROCESSES} processes are preparing the same folder{refused}")


def _make_work_folder(directory: int, folder: Path) -> None:
    """Create `work` in a locked folder, or keep that of an earlier process if it holds nothing but files of its own."""
    try:
        os.mkdir(_WORK, dir_fd=directory)
    except FileExistsError:
        if _has_only_files(directory):  # links in it could lead writes elsewhere
            return
        log.warning("event=scratch_folder_cleared path=%s reason=%r", folder / _WORK, "it has links or special files")
        if _is_folder(_WORK, directory):
            shutil.rmtree(_WORK, dir_fd=directory)
        else:
            os.unlink(_WORK, dir_fd=directory)
        os.mkdir(_WORK, dir_fd=directory)


def _has_only_files(directory: int) -> bool:
    """Whether `work` is a real folder with regular files only, none of which has a second name elsewhere."""
    if not _is_folder(_WORK, directory):
        return False
    for _, folders, names, parent in os.fwalk(_WORK, dir_fd=directory, follow_symlinks=False):
        if not all(_is_folder(name, parent) for name in folders):
            return False
        for name in names:
            shown = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISREG(shown.st_mode) or shown.st_nlink != 1:
                return False
    return True


def _is_folder(name: str, directory: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def _clear_abandoned(private: _PrivateFolders, stem: str, keep: str) -> None:
    """Remove folders of the same target that no process uses: those with another purpose, and those that are not private."""
    for folder in private.parent.glob(f"{stem}*.*"):
        with contextlib.suppress(OSError, UnsafeFile):
            if not private.is_owned(folder.name):
                continue
            with private.open(folder.name) as directory:
                if directory is not None and folder.name.startswith(keep):
                    continue
            held = os.open(folder, _FOLDER)
            try:
                if (descriptor := try_lock_file(Path(_LOCK), directory=held)) is not None:
                    _remove(folder, stem)
                    os.close(descriptor)
            finally:
                os.close(held)


def _remove(folder: Path, stem: str) -> None:
    """Rename before deleting, so that no other process acquires a half-deleted folder."""
    with contextlib.suppress(OSError):
        trash = tempfile.mkdtemp(prefix=f"{stem}gone.", dir=folder.parent)
        os.replace(folder, trash)
        shutil.rmtree(trash, ignore_errors=True)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
