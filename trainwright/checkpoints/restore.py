"""Restores and verifies exports: every file is verified during the copy, and the folder appears only when it is complete.

Each byte is read once and hashed as it arrives. SHA-256 costs 0.6 times the CPU seconds of a bare download (`bench/export.py`); no
checksum of a store can replace it, since only the manifest says what was exported. What is in the folder already and right is kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export, open_export
from trainwright.checkpoints.formats.whole_files import STATE, parse_state, training_state
from trainwright.checkpoints.manifest import Manifest, ManifestFile
from trainwright.storage.atomic_file import sync_files, sync_folder
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.parallel import Stop, for_each
from trainwright.storage.plain_files import ProgressCallback, file_digest, folder_files, no_progress
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import check_space, disk_errors

log = logging.getLogger(__name__)
_WAIT_SECONDS = 6 * 3600.0
"""For another restore to the same folder: longer than hundreds of gigabytes take."""
AT_ONCE = 4
_TRIES = 2
"""A byte may have been damaged on its way."""


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


def verify_export(
    uri: str,
    *,
    digest: str = "",
    quick: bool = False,
    start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress,
) -> Manifest:
    """Read every file of the export at `uri` and compare it with the manifest; with `digest`, check the manifest too.

    With `quick`, sizes and the checksums that the store itself reports are compared; a file is read only if its checksum differs.
    The manifest's step is compared with the content, too. Returns the manifest.
    Raises NoCheckpoint without an export, CheckpointError with all files that differ, StorageError.
    """
    export = open_export(uri, digest)
    manifest = export.manifest
    on_progress = start_progress(manifest.size)

    def problem_of(file: ManifestFile) -> str:
        stored = export.inspect(file)
        if stored is None:
            return f"{file.path} is missing"
        if stored.size != file.size:
            return f"{file.path} has {stored.size} bytes instead of {file.size}"
        # The store reports the checksum of the manifest, or one of them has none.
        if quick and (not stored.crc64nvme or not file.crc64nvme or stored.crc64nvme == file.crc64nvme):
            on_progress(file.size)
            return ""
        if export.checksums(file, on_progress).sha256 != file.sha256:
            return f"{file.path} has a different SHA-256 than in the manifest"
        return ""

    wrong = [problem for problem in for_each(manifest.files, problem_of, at_once=AT_ONCE) if problem]
    if wrong:
        raise CheckpointError(f"{uri} is corrupt: {'; '.join(wrong)}")
    state = export.read(STATE)
    if state is not None:
        check_step(manifest, parse_state(state), uri)
    return manifest


def check_step(manifest: Manifest, state: dict[str, object] | None, where: str) -> None:
    """Compare the manifest's step with that in the contents of `trainer_state.json`. Raises CheckpointError, which names `where`.

    Resuming, retention and `latest.json` go by the manifest's step, and training by that of the state.
    """
    found = (state or {}).get("global_step")
    if found is None:
        raise CheckpointError(f"{where} is not a checkpoint: {STATE} has no global_step")
    if found != manifest.step:
        raise CheckpointError(f"{where}: the manifest is of step {manifest.step}, but {STATE} of step {found!r}")


def folder_mismatch(folder: Path, manifest: Manifest) -> str:
    """Return how a restored copy differs from the manifest, or an empty string. Reads every file. Raises StorageError.

    A file that the manifest does not list counts too: a library that loads the folder would read it.
    """
    listed = {Path(file.path): file for file in manifest.files}
    with disk_errors(folder):
        found = folder_files(folder)
        others = sorted({*found.files, *found.refused} - set(listed))
        if others:  # a library would load it, too
            return f"{others[0]} is not in the manifest"
        for path, file in listed.items():
            if path not in found.files:
                return f"{path} is missing or not a regular file"
            if (folder / path).stat().st_size != file.size or file_digest(folder / path, within=folder) != file.sha256:
                return f"{path} has a different size or SHA-256 than in the manifest"
    return ""


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
    if _size_of(local_path) == file.size and file_digest(local_path) == file.sha256:  # left by an interrupted download
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
