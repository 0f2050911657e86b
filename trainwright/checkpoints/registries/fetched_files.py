"""Fetches the files of an export that are to be uploaded to a private folder, and verifies each against the manifest."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.formats import checkpoint_format, weights_only_files
from trainwright.checkpoints.manifest import ManifestFile
from trainwright.checkpoints.registries.registration import RegistrationOptions
from trainwright.storage.digests import ProgressCallback, file_digest, no_progress
from trainwright.storage.parallel import Stop, for_each
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import check_space, disk_errors

log = logging.getLogger(__name__)
_AT_ONCE = 4
_TRIES = 2
"""A byte may have been damaged on its way."""


@dataclass(frozen=True)
class FetchedFiles:
    """Files of an export below `folder`, at their paths in the checkpoint."""

    folder: Path
    files: tuple[ManifestFile, ...]


@contextlib.contextmanager
def fetched_files(export: Export, files: tuple[ManifestFile, ...], options: RegistrationOptions) -> Iterator[FetchedFiles]:
    """Yield the files in a scratch folder that is removed afterwards.

    What an interrupted or failed registration has fetched is kept, and fetched no second time. Raises NoSpace before anything is
    fetched, CheckpointError for a corrupt file, and if there are no weights without the training state, StorageError.
    """
    digest = export.manifest.digest
    scratch = (options.scratch or Path(tempfile.gettempdir())) / f"trainwright-register-{digest.partition(':')[2][:16]}"
    with contextlib.ExitStack() as stack:
        with disk_errors(scratch):
            folder = stack.enter_context(scratch_folder(scratch, digest, keep=True))
            _fetch_all(export, files, folder, options)
            if not options.training_state:
                weights_only_files(checkpoint_format(export.manifest.format), folder, [Path(file.path) for file in files])
        yield FetchedFiles(folder, files)


def uploaded_files(export: Export, options: RegistrationOptions) -> tuple[ManifestFile, ...]:
    """Return the files of the manifest that are uploaded: without the training state, unless it is wanted.

    Raises CheckpointError for an unknown format.
    """
    if options.training_state:
        return export.manifest.files
    known = checkpoint_format(export.manifest.format)
    return tuple(file for file in export.manifest.files if not known.is_training_state(PurePosixPath(file.path)))


def _fetch_all(export: Export, files: tuple[ManifestFile, ...], folder: Path, options: RegistrationOptions) -> None:
    there = {file.path for file in files if _size_of(folder / file.path) == file.size}
    check_space(folder, sum(file.size for file in files if file.path not in there))
    stop = Stop()
    on_progress = stop.watch(options.start_progress(sum(file.size for file in files)))
    for_each(files, lambda file: _fetch(export, file, folder / file.path, on_progress), at_once=_AT_ONCE, stop=stop)


def _fetch(export: Export, file: ManifestFile, target: Path, on_progress: ProgressCallback) -> None:
    if _size_of(target) == file.size and file_digest(target) == file.sha256:
        on_progress(file.size)
        return
    for attempt in range(_TRIES):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        found = export.get(file, target, no_progress if attempt else on_progress)
        if (found.size, found.sha256) == (file.size, file.sha256):
            return
        log.warning("event=download_damaged uri=%s attempt=%d", export.uri_of(file), attempt + 1)
    target.unlink(missing_ok=True)  # the others are kept for the next attempt
    raise CheckpointError(f"{export.uri_of(file)} is corrupt: its SHA-256 differs from the manifest")


def _size_of(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
