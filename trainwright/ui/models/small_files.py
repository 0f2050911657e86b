"""Reads small files of stores whole, and no more than their limit: a manifest that others have written may have any size."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.manifest import MANIFEST, Manifest
from trainwright.storage.errors import NotFound, StorageError
from trainwright.storage.store import Store

MAX_MANIFEST = 32 * 1024 * 1024
"""Bytes: about a hundred thousand files."""
MAX_RECORD = 4 * 1024 * 1024
"""Bytes of other records."""


@dataclass(frozen=True)
class BoundedExport(Export):
    """An export of which no large file is read."""

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file of at most 32 MiB, or None if the manifest does not list it. Raises StorageError."""
        for file in self.manifest.files:
            if file.path == path:
                store, key = self.place(file)
                return read_small(store, key, MAX_MANIFEST)
        return None


def read_small(store: Store, key: str, limit: int = MAX_RECORD) -> bytes | None:
    """Return the contents of a file of at most `limit` bytes, None if there is none. Raises StorageError, also for a larger one."""
    try:
        content = store.read_range(key, 0, limit + 1)
    except NotFound:
        return None
    if len(content) > limit:
        raise StorageError(f"{store.uri.join(key)} is larger than {limit} bytes, and is not shown")
    return content


def read_small_export(store: Store) -> BoundedExport:
    """Return the export in a store. Raises NoCheckpoint, CheckpointError, StorageError."""
    content = read_small(store, MANIFEST, MAX_MANIFEST)
    if content is None:
        raise NoCheckpoint(f"{store.uri} contains no export: it has no {MANIFEST}")
    return BoundedExport(store, Manifest.parse(content, str(store.uri.join(MANIFEST))))
