"""Fetches the files of an export that are to be uploaded to a private folder, and verifies each against the manifest."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainwright.checkpoints.download import download_files
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.formats import checkpoint_format, weights_only_files
from trainwright.checkpoints.manifest import ManifestFile
from trainwright.checkpoints.registries.registration import RegistrationOptions
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors


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
            download_files(export, files, folder, options.start_progress)
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
