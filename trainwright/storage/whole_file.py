"""Files that appear whole or not at all: written beside their target, made durable, then given its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainwright.storage.errors import AlreadyThere
from trainwright.storage.locks import NoLocks, hold, try_lock


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `target` when the block ends well, and goes when it does not. Raises OSError."""
    with _beside(target) as (temporary, file):
        yield file
        _make_durable(file)
        os.replace(temporary, target)
        _sync_folder(target.parent)


def create_whole(target: Path, content: bytes) -> None:
    """Write a file that must not exist yet: linked to its name, which fails where the name is taken.

    One of many writers wins. Raises AlreadyThere, OSError.
    """
    with _beside(target) as (temporary, file):
        file.write(content)
        _make_durable(file)
        try:
            os.link(temporary, target)
        except FileExistsError as error:
            raise AlreadyThere(f"{target} exists") from error
        except OSError:  # no hard links here (SMB, object-store mounts): still create-only, but not whole if we die in it
            _create_in_place(target, content)
        temporary.unlink()
        _sync_folder(target.parent)


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file in the folder of `target`, locked while we live; those of writers that were killed are removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not the name itself, which may be as long as names can be.
    prefix = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}."
    for left in target.parent.glob(f"{prefix}*.part"):
        _remove_if_abandoned(left)
    descriptor, temporary = _locked_file(target.parent, prefix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            yield temporary, file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _locked_file(folder: Path, prefix: str) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=".part")
        with contextlib.suppress(NoLocks):
            hold(descriptor)
        if os.path.exists(name):  # else somebody took it for abandoned before we had locked it
            return descriptor, Path(name)
        os.close(descriptor)


def _remove_if_abandoned(left: Path) -> None:
    with contextlib.suppress(OSError):  # its writer lives or is done, or there are no locks here
        descriptor = os.open(left, os.O_RDWR)
        try:
            if try_lock(descriptor):
                os.unlink(left)
        finally:
            os.close(descriptor)


def _create_in_place(target: Path, content: bytes) -> None:
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError as error:
        raise AlreadyThere(f"{target} exists") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            _make_durable(file)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """The name too survives a power cut. Some network file systems cannot do that for folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
