"""Restores an export: every file is verified during the copy, and the folder appears only when it is complete.

Each byte is read once and hashed as it arrives. SHA-256 costs 0.6 times the CPU seconds of a bare download (`bench/export.py`); no
checksum of a store can replace it, since only the manifest says what was exported.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.checkpoints.download import AT_ONCE, download_files
from trainwright.checkpoints.exported import Export, open_export
from trainwright.checkpoints.hf_trainer import STATE, training_state
from trainwright.checkpoints.manifest import Manifest, ManifestFile
from trainwright.checkpoints.verify import check_step, folder_mismatch
from trainwright.storage.atomic_file import sync_files, sync_folder
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors

log = logging.getLogger(__name__)
_WAIT_SECONDS = 6 * 3600.0
"""For another restore to the same folder: longer than hundreds of gigabytes take."""


def restore_checkpoint(
    uri: str,
    target: Path,
    *,
    digest: str = "",
    files: Sequence[ManifestFile] = (),
    start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress,
    at_once: int = AT_ONCE,
) -> Manifest:
    """Copy the export at `uri` to the folder `target`, or only some `files` of its manifest. Returns its manifest.

    `at_once` files are fetched at the same time.
    What an interrupted or failed restore has fetched is kept and verified; only files that differ are fetched again. A second
    restore to the same folder waits for the first. A folder that already has exactly these files is left as it is.
    Raises NoCheckpoint, CheckpointError for files that differ from the manifest, StorageError, FileExistsError for a folder with
    other contents.
    """
    _require_replaceable(target)
    export = open_export(uri, digest)
    manifest = export.manifest
    if files:
        export = Export(export.store, manifest.model_copy(update={"files": tuple(files)}))
    with contextlib.ExitStack() as stack:
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(file_lock(lock_path(target), timeout=_WAIT_SECONDS))
        if not _is_there(target, export.manifest):
            with disk_errors(target):
                _restore(export, target, start_progress, at_once)
    return manifest


def _restore(export: Export, target: Path, start_progress: Callable[[int], ProgressCallback], at_once: int) -> None:
    manifest = export.manifest
    with scratch_folder(target, manifest.digest, keep=True) as partial:
        download_files(export, manifest.files, partial, start_progress, shown_as=target, at_once=at_once)
        if (partial / STATE).is_file():
            check_step(manifest, training_state(partial), export.uri)
        sync_files(partial / file.path for file in manifest.files)
        os.replace(partial, target)
        sync_folder(target.parent)


def _is_there(target: Path, manifest: Manifest) -> bool:
    """Whether an earlier or a concurrent restore has made the folder. Raises FileExistsError for other contents."""
    if not target.is_dir() or not any(target.iterdir()):
        _require_replaceable(target)
        return False
    if mismatch := folder_mismatch(target, manifest):
        raise FileExistsError(f"{target} exists and is not empty, and is not this export: {mismatch}")
    log.info("event=already_restored path=%s manifest=%s", target, manifest.digest)
    return True


def _require_replaceable(target: Path) -> None:
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
        raise FileExistsError(f"{target} exists and is not a folder")
