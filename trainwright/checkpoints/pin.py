"""Keeps a checkpoint as it is during an export: pinned against rotation, and refused while it is still being written.

Rotation may remove it at any time, and a restarted training may overwrite it. Another rank may add its files after the first one
has written its last: a checkpoint that was just written is waited for before its files are stored, and looked at again before they
are published.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import Checkpoint, fingerprint
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import folder_files
from trainwright.storage.scratch import scratch_folder

QUIET_SECONDS = 2.0
"""How long a checkpoint must not have changed."""
_LOOK_SECONDS = 0.1
_OLD_SECONDS = 60.0
"""A checkpoint whose files are older is not waited for. Clocks of file servers may differ by seconds."""


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
    except FileNotFoundError:  # rotated away while it was linked
        complete = False
    except OSError:  # no links on this file system
        return False
    if not complete:
        raise CheckpointError(f"{folder} was removed or changed during the export; try again")
    return True


class QuietCheck:
    """Looks at `folder` now, and again in `settle` and `require`."""

    def __init__(
        self,
        folder: Path,
        seconds: float = QUIET_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._folder, self._clock, self._sleep = folder, clock, sleep
        self._before = fingerprint(folder)
        newest = max((changed / 1e9 for _, _, changed in self._before), default=0.0)
        self._until = clock() + (seconds if abs(time.time() - newest) < _OLD_SECONDS else 0.0)

    def settle(self, *, are_ranks_known: bool) -> None:
        """Wait until nothing has changed for the quiet time. Raise CheckpointError if something was added or changed.

        A checkpoint that is removed in that time may have been given another file after it was pinned. So that is refused, too,
        unless the number of ranks is known, which the check of the pinned files has counted.
        """
        while (left := self._until - self._clock()) > 0:
            self._sleep(min(_LOOK_SECONDS, left))
            if not self._is_whole():
                if are_ranks_known:  # the pinned files were complete, and nobody writes to them any more
                    return
                raise CheckpointError(f"{self._folder} was removed before it had been unchanged long enough to be complete")

    def require(self) -> None:
        """Raise CheckpointError if files were added or changed since. A checkpoint that was removed is no longer written."""
        self._is_whole()

    def _is_whole(self) -> bool:
        """Whether all files are still there, unchanged. Raises CheckpointError for one that was added or changed."""
        after = set(fingerprint(self._folder))
        if added := sorted(path for path, _, _ in after - set(self._before)):
            raise CheckpointError(
                f"{self._folder} is still being written ({added[0]} changed); export it again when it is complete"
            )
        return after == set(self._before)
