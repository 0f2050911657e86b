"""A folder beside a target, to prepare in. What a killed process left there is found again: to go on in, or to be removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.errors import StorageError
from trainwright.storage.locks import NoLocks, lock

_MOST = 64
"""Processes that prepare the same target at once; more than one is a mistake already."""


@contextlib.contextmanager
def scratch_folder(target: Path, purpose: str) -> Iterator[Path]:
    """A folder of our own on the disk of `target`.

    What an earlier process with the same `purpose` got done is still in it, when that was killed or ended in a StorageError
    (a full disk, a lost connection); with another purpose it is cleared away. It goes when the block ends in any other way.
    Raises StorageError, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{_short(target.name)}-"  # not the name itself, which may be as long as names can be
    _clear_abandoned(target.parent, stem, keep=f"{stem}{_short(purpose)}.")
    folder, descriptor = _own(target.parent, f"{stem}{_short(purpose)}")
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


def _own(parent: Path, name: str) -> tuple[Path, int | None]:
    """The first folder of this name and a number that nobody is in, locked."""
    for number in range(_MOST):
        folder = parent / f"{name}.{number}"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # its holder has just removed it
            try:
                descriptor = lock(folder / "lock")
            except NoLocks:
                return Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent)), None
            if descriptor is not None:
                return folder, descriptor
    raise StorageError(f"{parent}: {_MOST} processes prepare the same folder at once")


def _clear_abandoned(parent: Path, stem: str, keep: str) -> None:
    """Remove folders of the same target with another purpose, whose owner is gone."""
    for folder in parent.glob(f"{stem}*.*"):
        with contextlib.suppress(OSError):
            if not folder.name.startswith(keep) and (descriptor := lock(folder / "lock")) is not None:
                _remove(folder, stem)
                os.close(descriptor)


def _remove(folder: Path, stem: str) -> None:
    """Renamed first: nobody may move into a folder that is being emptied."""
    with contextlib.suppress(OSError):
        gone = tempfile.mkdtemp(prefix=f"{stem}gone.", dir=folder.parent)
        os.replace(folder, gone)
        shutil.rmtree(gone, ignore_errors=True)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
