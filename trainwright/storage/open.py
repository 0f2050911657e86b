"""Opens the store that a URI names. It is apart from the protocol, so that the stores can import the protocol."""

from __future__ import annotations

from trainwright.storage.errors import StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.store import Store
from trainwright.storage.uri import StorageUri


def open_store(uri: str | StorageUri) -> Store:
    """Return the store for an export URI. Raises BadUri, and StorageError for a scheme without a store."""
    parsed = StorageUri.parse(uri) if isinstance(uri, str) else uri
    if parsed.scheme == "file":
        return FileStore(parsed)
    if parsed.scheme == "s3":
        from trainwright.storage.s3_store import S3Store  # needs obstore, an optional dependency

        return S3Store(parsed)
    raise StorageError(f"{parsed}: exports to {parsed.scheme}:// are not supported yet; supported: file://, s3://")
