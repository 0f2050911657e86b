"""Reads an export: its manifest, and its files wherever the manifest says that they are stored."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.storage.claims import unseen_path_hint
from trainwright.storage.errors import NotFound
from trainwright.storage.open import check_mounted, open_store
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.store import Store, StoredFile


@dataclass(frozen=True)
class Export:
    """A published export: its folder in a store, and its manifest."""

    store: Store
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.store.uri.location.rpartition("/")[2]

    @property
    def uri(self) -> str:
        return str(self.store.uri)

    def key_in_run(self, file: ManifestFile) -> str:
        """The key of a stored file relative to the folder of the run's exports."""
        key = file.key
        return key.removeprefix("../") if key.startswith("../") else f"{self.name}/{key}"

    def uri_of(self, file: ManifestFile) -> str:
        """The URI of a stored file, for messages."""
        store, key = self.place(file)
        return str(store.uri.join(key))

    def get(self, file: ManifestFile, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        """Download a file. Raises NotFound, StorageError."""
        store, key = self.place(file)
        return store.get(key, target, on_progress)

    def inspect(self, file: ManifestFile) -> StoredFile | None:
        """Return size and, as far as the store reports it, checksum of a stored file; None if it is missing."""
        store, key = self.place(file)
        return store.inspect(key)

    def checksums(self, file: ManifestFile, on_progress: ProgressCallback = no_progress) -> StoredFile:
        """Read a stored file. Raises NotFound, StorageError."""
        store, key = self.place(file)
        return store.checksums(key, on_progress)

    def put_again(self, file: ManifestFile, folder: Path) -> StoredFile:
        """Upload a file whose stored copy is missing or corrupt, from a folder with the same contents."""
        store, key = self.place(file)
        return store.put(folder / file.path, key, within=folder)

    def read(self, path: str) -> bytes | None:
        """Return the contents of a small file of the checkpoint, or None if the manifest does not list it."""
        for file in self.manifest.files:
            if file.path == path:
                store, key = self.place(file)
                return store.read(key)
        return None

    def place(self, file: ManifestFile) -> tuple[Store, str]:
        """Return where a file is stored, and its key there."""
        key = file.key
        return (self._parent, key.removeprefix("../")) if key.startswith("../") else (self.store, key)

    @functools.cached_property
    def _parent(self) -> Store:
        return self.store.parent()


def open_export(uri: str, digest: str = "") -> Export:
    """Read the manifest of the export at `uri`; with `digest`, check it.

    Raises NoCheckpoint, NotMounted if the volume of the export is not mounted here, CheckpointError, StorageError.
    """
    try:
        return read_export(open_store(uri), digest)
    except NoCheckpoint:
        check_mounted(uri)
        raise


def read_export(store: Store, digest: str = "") -> Export:
    """Read the manifest of the export in a store; with `digest`, check it. Raises NoCheckpoint, CheckpointError, StorageError."""
    where = str(store.uri.join(MANIFEST))
    try:
        manifest = Manifest.parse(store.read(MANIFEST), where)
    except NotFound as error:
        raise NoCheckpoint(f"{store.uri} contains no export: it has no {MANIFEST}{unseen_path_hint(store.uri)}") from error
    if digest and manifest.digest != digest:
        raise CheckpointError(f"{where} has the digest {manifest.digest}, expected {digest}")
    return Export(store, manifest)


def find_export_in(store: Store) -> Export | None:
    """Return the export in a store, or None. Raises CheckpointError, StorageError."""
    try:
        return read_export(store)
    except NoCheckpoint:
        return None
