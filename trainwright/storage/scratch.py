"""Scratch folders next to a target. A later process resumes in the scratch folder of a killed one, or removes it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.errors import StorageError
from trainwright.storage.locks import LocksNotSupported, try_lock_file

_MAX_PROCESSES = 64
"""Maximum number of processes that prepare the same target concurrently; even two are a mistake."""


@contextlib.contextmanager
def scratch_folder(target: Path, purpose: str) -> Iterator[Path]:
    """Yield a folder on the disk of `target` that only this process uses.

    It keeps the work of an earlier process with the same `purpose` that was killed or ended in a StorageError (a full disk,
    a lost connection). Folders with another purpose are removed. It is removed when the block ends in any other way.
    Raises StorageError, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{_short(target.name)}-"  # a hash, because the name may already have the maximum length
    _clear_abandoned(target.parent, stem, keep=f"{stem}{_short(purpose)}.")
    folder, descriptor = _acquire_folder(target.parent, f"{stem}{_short(purpose)}")
    work = folder / "work"
    try:
        work.mkdir(exist_ok=True)
        yield work
    except StorageError:
        if not (work.is_dir() and any(work.iterdir())):
            _remove(folder, stem)
        raise
    except BaseException:
        _remove(folder, stem)
        raise
    else:
        _remove(folder, stem)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _acquire_folder(parent: Path, name: str) -> tuple[Path, int | None]:
    """Lock and return the first folder NAME.NUMBER that no other process uses."""
    for number in range(_MAX_PROCESSES):
        folder = parent / f"{name}.{number}"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # its holder has just removed it
            try:
                descriptor = try_lock_file(folder / "lock")
            except LocksNotSupported:
                return Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent)), None
            if descriptor is not None:
                return folder, descriptor
    raise StorageError(f"{parent}: {_MAX_PROCESSES} processes are preparing the same folder")


def _clear_abandoned(parent: Path, stem: str, keep: str) -> None:
    """Remove folders of the same target with another purpose that no process uses."""
    for folder in parent.glob(f"{stem}*.*"):
        with contextlib.suppress(OSError):
            if not folder.name.startswith(keep) and (descriptor := try_lock_file(folder / "lock")) is not None:
                _remove(folder, stem)
                os.close(descriptor)


def _remove(folder: Path, stem: str) -> None:
    """Rename before deleting, so that no other process acquires a half-deleted folder."""
    with contextlib.suppress(OSError):
        trash = tempfile.mkdtemp(prefix=f"{stem}gone.", dir=folder.parent)
        os.replace(folder, trash)
        shutil.rmtree(trash, ignore_errors=True)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
