"""Checking an export: every file that its manifest lists is there, as large and with the digest that it says."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.manifest import MANIFEST, Manifest
from trainwright.storage.digests import Advance, silent
from trainwright.storage.errors import NotThere
from trainwright.storage.store import Store, open_store


def verify_export(uri: str, *, digest: str = "", announce: Callable[[int], Advance] = lambda _total: silent) -> Manifest:
    """Read every file of the export at `uri` and compare it with the manifest; with `digest` the manifest itself too.

    Returns the manifest. Raises NoCheckpoint where there is none, CheckpointError naming every file that differs, StorageError.
    """
    store = open_store(uri)
    manifest = read_manifest(store, digest)
    advance = announce(manifest.size)
    wrong = []
    for file in manifest.files:
        there = store.head(file.path)
        if there is None:
            wrong.append(f"{file.path} is missing")
        elif there.size != file.size:
            wrong.append(f"{file.path} has {there.size} bytes instead of {file.size}")
        elif store.digest(file.path, advance) != file.sha256:
            wrong.append(f"{file.path} has another SHA-256 than the manifest says")
    if wrong:
        raise CheckpointError(f"{uri} is damaged: {'; '.join(wrong)}")
    return manifest


def read_manifest(store: Store, digest: str = "") -> Manifest:
    """The manifest of an export. Raises NoCheckpoint, CheckpointError."""
    where = str(store.uri.join(MANIFEST))
    try:
        manifest = Manifest.parse(store.read(MANIFEST), where)
    except NotThere as error:
        raise NoCheckpoint(f"{store.uri} holds no export: it has no {MANIFEST}") from error
    if digest and manifest.digest != digest:
        raise CheckpointError(f"{where} has the digest {manifest.digest}, expected {digest}")
    return manifest
