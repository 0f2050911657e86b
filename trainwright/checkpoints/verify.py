"""Verifies an export: every file in its manifest must exist with the recorded size and digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.hf_trainer import STATE, parse_state
from trainwright.checkpoints.manifest import MANIFEST, Manifest
from trainwright.storage.digests import ProgressCallback, file_digest, no_progress
from trainwright.storage.errors import NotFound
from trainwright.storage.open import open_store
from trainwright.storage.plain_files import folder_files
from trainwright.storage.store import Store
from trainwright.storage.transfer import disk_errors


def verify_export(
    uri: str, *, digest: str = "", start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress
) -> Manifest:
    """Read every file of the export at `uri` and compare it with the manifest; with `digest`, check the manifest too.

    The manifest's step is compared with the content, too. Returns the manifest.
    Raises NoCheckpoint without an export, CheckpointError with all files that differ, StorageError.
    """
    store = open_store(uri)
    manifest = read_manifest(store, digest)
    on_progress = start_progress(manifest.size)
    wrong = []
    for file in manifest.files:
        stored = store.head(file.path)
        if stored is None:
            wrong.append(f"{file.path} is missing")
        elif stored.size != file.size:
            wrong.append(f"{file.path} has {stored.size} bytes instead of {file.size}")
        elif store.digest(file.path, on_progress) != file.sha256:
            wrong.append(f"{file.path} has a different SHA-256 than in the manifest")
    if wrong:
        raise CheckpointError(f"{uri} is corrupt: {'; '.join(wrong)}")
    if any(file.path == STATE for file in manifest.files):
        check_step(manifest, parse_state(store.read(STATE)), uri)
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
        if others:
            return f"{others[0]} is not in the manifest"
        for path, file in listed.items():
            if path not in found.files:
                return f"{path} is missing or not a regular file"
            if (folder / path).stat().st_size != file.size or file_digest(folder / path, within=folder) != file.sha256:
                return f"{path} has a different size or SHA-256 than in the manifest"
    return ""


def read_manifest(store: Store, digest: str = "") -> Manifest:
    """Read the manifest of an export; with `digest`, check it. Raises NoCheckpoint, CheckpointError, StorageError."""
    where = str(store.uri.join(MANIFEST))
    try:
        manifest = Manifest.parse(store.read(MANIFEST), where)
    except NotFound as error:
        raise NoCheckpoint(f"{store.uri} contains no export: it has no {MANIFEST}") from error
    if digest and manifest.digest != digest:
        raise CheckpointError(f"{where} has the digest {manifest.digest}, expected {digest}")
    return manifest
