"""Bringing an export back: every file verified while it is copied, and the folder there only when all of it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.manifest import Manifest, ManifestFile
from trainwright.checkpoints.verify import read_manifest
from trainwright.storage.digests import Advance, file_digest, silent
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.store import Store, StoredFile, open_store
from trainwright.storage.transfer import check_space, disk_errors


def restore_checkpoint(
    uri: str, target: Path, *, digest: str = "", announce: Callable[[int], Advance] = lambda _total: silent
) -> Manifest:
    """Copy the export at `uri` into the new folder `target`; returns its manifest. One that was cut off goes on.

    Raises NoCheckpoint, CheckpointError for files that differ from the manifest, StorageError, FileExistsError.
    """
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not empty")
    store = open_store(uri)
    manifest = read_manifest(store, digest)
    with disk_errors(target), scratch_folder(target, manifest.digest) as partial:
        got = {file.path for file in manifest.files if _size_of(partial / file.path) == file.size}
        check_space(target, sum(file.size for file in manifest.files if file.path not in got))
        advance = announce(manifest.size)
        for file in manifest.files:
            _fetch(store, file, partial / file.path, advance)
        os.replace(partial, target)
    return manifest


def _fetch(store: Store, file: ManifestFile, place: Path, advance: Advance) -> None:
    if _size_of(place) == file.size and file_digest(place) == file.sha256:
        advance(file.size)
        return
    if store.get(file.path, place, advance) != StoredFile(file.size, file.sha256):
        raise CheckpointError(f"{store.uri.join(file.path)} is damaged: its SHA-256 is not the one that the manifest says")


def _size_of(place: Path) -> int | None:
    return place.stat().st_size if place.is_file() else None
