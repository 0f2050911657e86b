"""Exports a checkpoint: pin it, copy and digest it in one pass, check the stored sizes, and write the manifest last.

An interrupted export has no manifest, so readers ignore it. Running it again resumes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.times import now
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import Checkpoint, find_checkpoints, latest_checkpoint
from trainwright.checkpoints.latest import update_latest
from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.checkpoints.origin import recorded_origin
from trainwright.checkpoints.pin import pin_checkpoint
from trainwright.storage.digests import ProgressCallback, file_digest, no_progress
from trainwright.storage.errors import AlreadyExists, NotFound
from trainwright.storage.open import open_store
from trainwright.storage.plain_files import files_below
from trainwright.storage.store import Store, StoredFile
from trainwright.storage.transfer import check_space, disk_errors

log = logging.getLogger(__name__)
_NOT_EXPORTED = {"training_args.bin"}
"""A pickle that is not needed to use or resume a checkpoint, and is unsafe to load."""
_RESUME_STATE = ("optimizer.pt", "scheduler.pt", "scaler.pt")


@dataclass(frozen=True)
class ExportResult:
    """The URI and the manifest of an export, and whether it had existed before."""

    uri: str
    manifest: Manifest
    existed: bool

    @property
    def digest(self) -> str:
        return self.manifest.digest


def export_checkpoint(
    folder: Path,
    target: str,
    *,
    source: str,
    step: int | None = None,
    resumable: bool = True,
    metadata: dict[str, object] | None = None,
    start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress,
) -> ExportResult:
    """Export the newest complete checkpoint below `folder` (or that of `step`) to `target/checkpoint-N`.

    `source` names the run. The digests of the dataset and the model are recorded in the manifest's metadata as `origin`.
    Without `resumable` optimizer and random states are omitted. `start_progress` is called with the total number of bytes
    and returns the progress callback. An existing export with the same files is verified, and corrupt files are uploaded
    again. Concurrent exports of the same checkpoint wait for each other.
    Raises NoCheckpoint, CheckpointError (a different export has that name, the checkpoint was removed), StorageError.
    """
    parent = open_store(target)
    checkpoint = _select_checkpoint(folder, step)
    name = checkpoint.path.name
    store = parent.below(name)
    origin = recorded_origin(folder)
    metadata = {**({} if origin is None else {"origin": origin}), **(metadata or {})}
    with disk_errors(checkpoint.path), parent.lock(name):
        exported = _export(checkpoint, store, source, resumable, metadata, start_progress)
    update_latest(parent, name, exported.manifest)
    log.info("checkpoint exported uri=%s step=%d digest=%s", exported.uri, exported.manifest.step, exported.digest)
    return exported


def _export(
    checkpoint: Checkpoint,
    store: Store,
    source: str,
    resumable: bool,
    metadata: dict[str, object],
    start_progress: Callable[[int], ProgressCallback],
) -> ExportResult:
    with pin_checkpoint(checkpoint) as folder:
        paths = [path for path in files_below(folder) if _is_exported(path, resumable)]
        if any(path.parts[0] == MANIFEST for path in paths):
            raise CheckpointError(f"{checkpoint.path / MANIFEST} has the name of the export's own manifest; rename it")
        local = {_key(path): (folder / path).stat().st_size for path in paths}
        existing = _existing_manifest(store)
        on_progress = start_progress(sum(local.values()))
        if existing is not None:
            _check_same(existing, folder, list(local), store, on_progress)
            return ExportResult(str(store.uri), existing, True)
        if store.uri.scheme == "file":
            check_space(store.uri.path, sum(size for key, size in local.items() if store.head(key) != StoredFile(size)))
        files = tuple(_send(store, folder, key, size, on_progress) for key, size in local.items())
    manifest = Manifest(format="hf-trainer", step=checkpoint.step, source=source, created=now(), files=files, metadata=metadata)
    try:
        store.create(MANIFEST, manifest.text())
    except AlreadyExists as error:  # only in a store without locks
        raise CheckpointError(f"{store.uri}: another process exported this checkpoint at the same time; try again") from error
    return ExportResult(str(store.uri), manifest, False)


def _select_checkpoint(folder: Path, step: int | None) -> Checkpoint:
    if step is None:
        return latest_checkpoint(folder)
    candidates = find_checkpoints(folder)
    for candidate in candidates:
        if candidate.step == step:
            if candidate.incomplete:
                raise CheckpointError(f"{candidate.path} is incomplete: {candidate.incomplete}")
            return candidate
    steps = ", ".join(str(candidate.step) for candidate in candidates) or "none"
    raise NoCheckpoint(f"{folder} has no checkpoint of step {step}; available steps: {steps}")


def _is_exported(path: Path, resumable: bool) -> bool:
    if path.name in _NOT_EXPORTED:
        return False
    return resumable or not (path.name in _RESUME_STATE or path.name.startswith("rng_state"))


def _key(path: Path) -> str:
    """Return the path as a store key. It must be Unicode, because the manifest is JSON."""
    try:
        return path.as_posix().encode().decode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{path.as_posix()!r}: the name of a file to export must be valid Unicode") from error


def _send(store: Store, folder: Path, key: str, size: int, on_progress: ProgressCallback) -> ManifestFile:
    """Upload a file unless the store has it already, and check the stored size."""
    stored_file = store.head(key)
    if stored_file is not None and stored_file.size == size:
        local_digest = file_digest(folder / key, on_progress, within=folder)
        if (stored_file.sha256 or store.digest(key)) == local_digest:
            return ManifestFile(path=key, size=size, sha256=local_digest)
        on_progress = no_progress  # already reported
    return _put(store, folder, key, on_progress)


def _put(store: Store, folder: Path, key: str, on_progress: ProgressCallback) -> ManifestFile:
    stored = store.put(folder / key, key, on_progress, within=folder)
    arrived = store.head(key)
    if arrived is None or arrived.size != stored.size:
        raise CheckpointError(f"{store.uri.join(key)}: sent {stored.size} bytes, stored {arrived.size if arrived else 'none'}")
    return ManifestFile(path=key, size=stored.size, sha256=stored.sha256)


def _existing_manifest(store: Store) -> Manifest | None:
    try:
        return Manifest.parse(store.read(MANIFEST), str(store.uri.join(MANIFEST)))
    except NotFound:
        return None


def _check_same(existing: Manifest, folder: Path, keys: list[str], store: Store, on_progress: ProgressCallback) -> None:
    """Check that the existing export has the same files. Upload files again whose stored copy differs from the manifest."""
    local = {key: file_digest(folder / key, on_progress, within=folder) for key in keys}
    exported = {file.path: file.sha256 for file in existing.files}
    if local != exported:
        differing = sorted(set(local.items()) ^ set(exported.items()))[0][0]
        raise CheckpointError(
            f"{store.uri} contains a different checkpoint with the same name ({differing} differs); choose another target"
        )
    for file in existing.files:
        stored_file = store.head(file.path)
        if stored_file is None or stored_file.size != file.size or store.digest(file.path) != file.sha256:
            log.warning("an exported file is missing or corrupt, uploading it again uri=%s", store.uri.join(file.path))
            _put(store, folder, file.path, no_progress)
