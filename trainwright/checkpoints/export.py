"""Exporting a checkpoint: pin, one pass that digests while it copies, check what arrived, and only then the manifest.

An export that is cut off leaves no manifest, so it does not exist for any reader; running it again goes on where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.times import now
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import Checkpoint, find_checkpoints, latest_checkpoint
from trainwright.checkpoints.latest import point_latest
from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.checkpoints.origin import recorded_origin
from trainwright.checkpoints.pin import pinned
from trainwright.storage.digests import Advance, file_digest, files_below, silent
from trainwright.storage.errors import AlreadyThere, NotThere
from trainwright.storage.store import Store, StoredFile, open_store
from trainwright.storage.transfer import check_space, disk_errors

log = logging.getLogger(__name__)
_NOT_EXPORTED = {"training_args.bin"}
"""A pickle that nobody needs to use or resume a checkpoint, and nobody should load from elsewhere."""
_STATE_FOR_RESUME = ("optimizer.pt", "scheduler.pt", "scaler.pt")


@dataclass(frozen=True)
class Exported:
    """Where the export lies, its manifest, and whether it was there before."""

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
    announce: Callable[[int], Advance] = lambda _total: silent,
) -> Exported:
    """Export the newest whole checkpoint below `folder` (or that of `step`) to `target/checkpoint-N`.

    `source` names the run; what the checkpoint comes from goes into the manifest's metadata as `origin`. Without
    `resumable` optimizer and random states stay behind. `announce` is told the total number of bytes and returns what to
    call with those that are done. An export that is there already with the same files is verified, mended where a stored
    file is damaged, and returned; exporters of the same checkpoint take turns.
    Raises NoCheckpoint, CheckpointError (another export has that name, the checkpoint went), StorageError.
    """
    parent = open_store(target)
    checkpoint = _chosen(folder, step)
    name = checkpoint.path.name
    store = open_store(parent.uri.join(name))
    origin = recorded_origin(folder)
    metadata = {**({} if origin is None else {"origin": origin}), **(metadata or {})}
    with disk_errors(checkpoint.path), parent.exclusive(name):
        exported = _export(checkpoint, store, source, resumable, metadata, announce)
    point_latest(parent, name, exported.manifest)
    log.info("checkpoint exported uri=%s step=%d digest=%s", exported.uri, exported.manifest.step, exported.digest)
    return exported


def _export(
    checkpoint: Checkpoint,
    store: Store,
    source: str,
    resumable: bool,
    metadata: dict[str, object],
    announce: Callable[[int], Advance],
) -> Exported:
    with pinned(checkpoint) as folder:
        paths = [path for path in files_below(folder) if _is_exported(path, resumable)]
        local = {_key(path): (folder / path).stat().st_size for path in paths}
        existing = _existing_manifest(store)
        advance = announce(sum(local.values()))
        if existing is not None:
            _check_same(existing, folder, list(local), store, advance)
            return Exported(str(store.uri), existing, True)
        if store.uri.scheme == "file":
            check_space(store.uri.path, sum(size for key, size in local.items() if store.head(key) != StoredFile(size)))
        files = tuple(_send(store, folder, key, size, advance) for key, size in local.items())
    manifest = Manifest(format="hf-trainer", step=checkpoint.step, source=source, created=now(), files=files, metadata=metadata)
    try:
        store.create(MANIFEST, manifest.text())
    except AlreadyThere as error:  # only where the store cannot keep others out meanwhile
        raise CheckpointError(f"{store.uri}: another exporter published this checkpoint at the same time; try again") from error
    return Exported(str(store.uri), manifest, False)


def _chosen(folder: Path, step: int | None) -> Checkpoint:
    if step is None:
        return latest_checkpoint(folder)
    candidates = find_checkpoints(folder)
    for candidate in candidates:
        if candidate.step == step:
            if candidate.incomplete:
                raise CheckpointError(f"{candidate.path} is not whole: {candidate.incomplete}")
            return candidate
    steps = ", ".join(str(candidate.step) for candidate in candidates) or "none"
    raise NoCheckpoint(f"{folder} has no checkpoint of step {step}; it has: {steps}")


def _is_exported(path: Path, resumable: bool) -> bool:
    if path.name in _NOT_EXPORTED or path == Path(MANIFEST):
        return False
    return resumable or not (path.name in _STATE_FOR_RESUME or path.name.startswith("rng_state"))


def _key(path: Path) -> str:
    """A path as a key of the store: text, since the manifest is."""
    try:
        return path.as_posix().encode().decode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{path.as_posix()!r}: the name of a file to export must be Unicode") from error


def _send(store: Store, folder: Path, key: str, size: int, advance: Advance) -> ManifestFile:
    """One file: kept when the store has the same already, else copied; then what arrived is checked."""
    there = store.head(key)
    if there is not None and there.size == size:
        wanted = file_digest(folder / key, advance)
        if (there.sha256 or store.digest(key)) == wanted:
            return ManifestFile(path=key, size=size, sha256=wanted)
        advance = silent  # counted already
    return _put(store, folder, key, advance)


def _put(store: Store, folder: Path, key: str, advance: Advance) -> ManifestFile:
    stored = store.put(folder / key, key, advance)
    arrived = store.head(key)
    if arrived is None or arrived.size != stored.size:
        raise CheckpointError(
            f"{store.uri.join(key)}: {stored.size} bytes were sent, {arrived.size if arrived else 'none'} arrived"
        )
    return ManifestFile(path=key, size=stored.size, sha256=stored.sha256)


def _existing_manifest(store: Store) -> Manifest | None:
    try:
        return Manifest.parse(store.read(MANIFEST), str(store.uri.join(MANIFEST)))
    except NotThere:
        return None


def _check_same(existing: Manifest, folder: Path, keys: list[str], store: Store, advance: Advance) -> None:
    """That the export lists our files; a stored file that is no longer what the manifest says is sent again."""
    ours = {key: file_digest(folder / key, advance) for key in keys}
    theirs = {file.path: file.sha256 for file in existing.files}
    if ours != theirs:
        differing = sorted(set(ours.items()) ^ set(theirs.items()))[0][0]
        raise CheckpointError(
            f"{store.uri} holds another checkpoint of the same name ({differing} differs); choose another target"
        )
    for file in existing.files:
        there = store.head(file.path)
        if there is None or there.size != file.size or store.digest(file.path) != file.sha256:
            log.warning("a stored file was missing or damaged and is sent again uri=%s", store.uri.join(file.path))
            _put(store, folder, file.path, silent)
