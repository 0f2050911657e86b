"""Pins a checkpoint during an export: rotation may remove it at any time, and a restarted training may overwrite it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import Checkpoint, fingerprint
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import folder_files
from trainwright.storage.scratch import scratch_folder


@contextlib.contextmanager
def pin_checkpoint(checkpoint: Checkpoint) -> Iterator[Path]:
    """Yield a folder with hard links to the checkpoint's files, which rotation cannot remove.

    Without support for hard links the checkpoint folder itself is used. Raises CheckpointError if the files are not a complete
    checkpoint of its format, are not all regular files inside the folder, or change until the block ends; OSError.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(_links(checkpoint)) or checkpoint.path
            folder_files(folder).require_none_refused(checkpoint.path)
        except UnsafeFile as error:
            raise CheckpointError(str(error)) from error
        before = fingerprint(folder)
        reason = checkpoint.incomplete_reason(folder) if before else "it does not exist"
        if reason:
            raise CheckpointError(f"{checkpoint.path} was removed or changed during the export: {reason}")
        yield folder
        if fingerprint(folder) != before:
            raise CheckpointError(f"{checkpoint.path} was removed or changed during the export; try again")


@contextlib.contextmanager
def _links(checkpoint: Checkpoint) -> Iterator[Path | None]:
    """Yield a folder with a hard link to every file, or None if links are not possible."""
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(scratch_folder(checkpoint.path.with_name("export"), checkpoint.path.name))
        except OSError:  # a read-only folder, which is not rotated either
            yield None
            return
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        yield work if _link_all(checkpoint.path, work) else None


def _link_all(folder: Path, work: Path) -> bool:
    try:
        shutil.rmtree(work)  # links of a killed export
        work.mkdir()
        found = folder_files(folder)
        found.require_none_refused(folder)
        for path in found.files:
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            # A link that appears just now is linked itself, and refused in `work`.
            os.link((folder / path).resolve(strict=True), work / path, follow_symlinks=False)
        complete = found == folder_files(folder)
    except FileNotFoundError:
        complete = False
    except OSError:
        return False
    if not complete:
        raise CheckpointError(f"{folder} was removed or changed during the export; try again")
    return True
