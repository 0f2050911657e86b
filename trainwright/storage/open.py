"""Opens the store that a URI names. It is apart from the protocol, so that the stores can import the protocol."""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.api.names import CLAIMS_FOLDER
from trainwright.storage.errors import NotMounted, NotPermitted, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.store import Store
from trainwright.storage.uri import StorageUri

_MOUNT_PARENTS = (Path("/"), Path("/mnt"), Path("/media"), Path(CLAIMS_FOLDER))
"""Folders of every machine below which volumes are mounted: what is missing right below them is a volume."""


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


def check_mounted(uri: str | StorageUri) -> None:
    """Check that a missing file is missing, and not only out of sight: its volume may be mounted elsewhere.

    A missing folder of a volume passes: it has yet to be created. Raises BadUri, NotPermitted, NotMounted if the root of the
    volume is missing, too.
    """
    parsed = StorageUri.parse(uri) if isinstance(uri, str) else uri
    if parsed.scheme != "file":
        return
    missing = parsed.path
    for folder in (parsed.path, *parsed.path.parents):
        try:
            os.stat(folder)
        except PermissionError as error:
            raise NotPermitted(f"{parsed}: {folder.parent} may not be read by this process (user id {os.getuid()})") from error
        except OSError:  # missing, or below a file
            missing = folder
            continue
        if folder in _MOUNT_PARENTS and missing != folder and (folder == Path("/") or not folder.is_mount()):
            break
        return
    raise NotMounted(
        f"{parsed}: {missing} does not exist where this step runs, so its files cannot be seen; mount the volume there, or use an "
        f"object store (s3://, gs://, az://); if {missing} is to be a new folder of this machine, create it first"
    )
