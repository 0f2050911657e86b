"""Reads an export: its manifest, and its files wherever the manifest says that they are stored; and compares two exports."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.checkpoints.training_history import HISTORY
from trainwright.storage.claims import unseen_path_hint
from trainwright.storage.errors import NotFound
from trainwright.storage.open import check_mounted, open_store
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.store import Store, StoredFile

_MAX_FIELDS = 500
_MAX_DEPTH = 6


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
    except NoCheckpoint:  # its absence is an answer here
        return None


class Difference(TypedDict):
    """Paths of files by how they differ; `unchanged` is their number. `bytes` and each of the `metrics` are those of both exports."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    unchanged: int
    bytes: list[int]
    metrics: dict[str, list[float | None]]


def compare_exports(one: Manifest, other: Manifest) -> Difference:
    """Return what differs from one export to the other."""
    before = {file.path: file for file in one.files}
    after = {file.path: file for file in other.files}
    changed = [path for path in sorted(before.keys() & after.keys()) if before[path].sha256 != after[path].sha256]
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": changed,
        "unchanged": len(before.keys() & after.keys()) - len(changed),
        "bytes": [one.size, other.size],
        "metrics": {name: [one.metrics.get(name), other.metrics.get(name)] for name in sorted({*one.metrics, *other.metrics})},
    }


def has_same_files(difference: Difference) -> bool:
    return not (difference["added"] or difference["removed"] or difference["changed"])


def recorded_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the records of a manifest without files, metrics and log history, with a dotted name for each value."""
    metadata = {name: value for name, value in manifest.metadata.items() if name != HISTORY}
    about = {"format": manifest.format, "step": manifest.step, "source": manifest.source, "resumable": manifest.resumable}
    return {**about, **flat_fields(metadata)}


def flat_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested objects under dotted names: the first 500. Lists are values."""
    found: dict[str, Any] = {}
    for name, value in _flat("", values, 0):
        if len(found) == _MAX_FIELDS:  # a manifest may have been written by anybody
            break
        found[name] = value
    return found


def changed_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields that differ, each with both values; None for one that is missing."""
    names = dict.fromkeys((*one, *other))
    return {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)}


def _flat(prefix: str, values: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value and depth < _MAX_DEPTH:
            yield from _flat(f"{prefix}{name}.", value, depth + 1)
        else:
            yield f"{prefix}{name}", value
