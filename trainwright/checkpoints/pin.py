"""Holding on to a checkpoint while it is read: rotation may remove it at any time, a restarted training may write it anew."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import Checkpoint, fingerprint
from trainwright.checkpoints.hf_trainer import incomplete_because
from trainwright.storage.digests import files_below
from trainwright.storage.scratch import scratch_folder


@contextlib.contextmanager
def pinned(checkpoint: Checkpoint) -> Iterator[Path]:
    """The checkpoint's files under names of our own (hard links), so that rotation cannot take them away while we read.

    Where there can be no hard links the folder itself is read. Raises CheckpointError when the files that were read are not
    a whole checkpoint, before and after; OSError.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_links(checkpoint)) or checkpoint.path
        before = fingerprint(folder)
        problem = incomplete_because(folder, checkpoint.step) if before else "it is gone"
        if problem:
            raise CheckpointError(f"{checkpoint.path} was removed or changed while it was being exported: {problem}")
        yield folder
        if fingerprint(folder) != before:
            raise CheckpointError(f"{checkpoint.path} was removed or changed while it was being exported; try again")


@contextlib.contextmanager
def _links(checkpoint: Checkpoint) -> Iterator[Path | None]:
    """A folder with a hard link to every file, or None where that cannot be."""
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(scratch_folder(checkpoint.path.with_name("export"), checkpoint.path.name))
        except OSError:  # read-only: nobody rotates it either
            yield None
            return
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        yield work if _link_all(checkpoint.path, work) else None


def _link_all(folder: Path, work: Path) -> bool:
    try:
        shutil.rmtree(work)  # what an export that was killed had linked
        work.mkdir()
        paths = files_below(folder)
        for path in paths:
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            os.link((folder / path).resolve(strict=True), work / path)
        complete = paths == files_below(folder)
    except FileNotFoundError:
        complete = False
    except OSError:
        return False
    if not complete:
        raise CheckpointError(f"{folder} was removed or changed while it was being exported; try again")
    return True
