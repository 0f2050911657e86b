"""Fetches files of an export to a folder and verifies each. What is there already and right is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.manifest import ManifestFile
from trainwright.storage.parallel import Stop, for_each
from trainwright.storage.plain_files import ProgressCallback, file_digest, no_progress
from trainwright.storage.transfer import check_space

log = logging.getLogger(__name__)
AT_ONCE = 4
_TRIES = 2
"""A byte may have been damaged on its way."""


def download_files(
    export: Export,
    files: Sequence[ManifestFile],
    folder: Path,
    start_progress: Callable[[int], ProgressCallback],
    *,
    shown_as: Path | None = None,
    at_once: int = AT_ONCE,
) -> None:
    """Fetch files to their paths in `folder`, which only this process uses, `at_once` at a time; not synced to the disk.

    `start_progress` is called with the total number of bytes. `shown_as` names the folder if the disk has too little space.
    Raises NoSpace before anything is fetched, CheckpointError for a file that differs from the manifest, StorageError, OSError.
    """
    missing = sum(file.size for file in files if _size_of(folder / file.path) != file.size)
    check_space(shown_as or folder, missing)
    stop = Stop()
    on_progress = stop.watch(start_progress(sum(file.size for file in files)))
    for_each(files, lambda file: _download(export, file, folder / file.path, on_progress), at_once=at_once, stop=stop)


def _download(export: Export, file: ManifestFile, local_path: Path, on_progress: ProgressCallback) -> None:
    if _size_of(local_path) == file.size and file_digest(local_path) == file.sha256:
        on_progress(file.size)
        return
    for attempt in range(_TRIES):
        found = export.get(file, local_path, no_progress if attempt else on_progress)
        if (found.size, found.sha256) == (file.size, file.sha256):
            return
        local_path.unlink(missing_ok=True)  # the others are kept for the next attempt
        log.warning("event=download_damaged uri=%s attempt=%d", export.uri_of(file), attempt + 1)
    raise CheckpointError(f"{export.uri_of(file)} is corrupt: its SHA-256 differs from the manifest")


def _size_of(local_path: Path) -> int | None:
    return local_path.stat().st_size if local_path.is_file() else None
