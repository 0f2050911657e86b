"""Restores an export: every file is verified during the copy, and the folder appears only when it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.manifest import Manifest, ManifestFile
from trainwright.checkpoints.verify import read_manifest
from trainwright.storage.digests import ProgressCallback, file_digest, no_progress
from trainwright.storage.open import open_store
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.store import Store, StoredFile
from trainwright.storage.transfer import check_space, disk_errors


def restore_checkpoint(
    uri: str, target: Path, *, digest: str = "", start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress
) -> Manifest:
    """Copy the export at `uri` to the new folder `target`. Returns its manifest. Resumes an interrupted copy.

    Raises NoCheckpoint, CheckpointError for files that differ from the manifest, StorageError, FileExistsError.
    """
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not empty")
    store = open_store(uri)
    manifest = read_manifest(store, digest)
    with disk_errors(target), scratch_folder(target, manifest.digest) as partial:
        fetched = {file.path for file in manifest.files if _size_of(partial / file.path) == file.size}
        check_space(target, sum(file.size for file in manifest.files if file.path not in fetched))
        on_progress = start_progress(manifest.size)
        for file in manifest.files:
            _fetch(store, file, partial / file.path, on_progress)
        os.replace(partial, target)
    return manifest


def _fetch(store: Store, file: ManifestFile, local_path: Path, on_progress: ProgressCallback) -> None:
    if _size_of(local_path) == file.size and file_digest(local_path) == file.sha256:
        on_progress(file.size)
        return
    if store.get(file.path, local_path, on_progress) != StoredFile(file.size, file.sha256):
        raise CheckpointError(f"{store.uri.join(file.path)} is corrupt: its SHA-256 differs from the manifest")


def _size_of(local_path: Path) -> int | None:
    return local_path.stat().st_size if local_path.is_file() else None
