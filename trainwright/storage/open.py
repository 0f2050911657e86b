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
        from trainwright.storage.objects.s3_store import S3Store  # needs obstore, an optional dependency

        return S3Store(parsed)
    if parsed.scheme == "gs":
        from trainwright.storage.objects.gcs_store import GcsStore

        return GcsStore(parsed)
    if parsed.scheme == "az":
        from trainwright.storage.objects.azure_store import AzureStore

        return AzureStore(parsed)
    raise StorageError(f"{parsed}: {parsed.scheme}:// is not a store; supported: file://, s3://, gs://, az://")
