"""A store in a container of Azure Blob Storage, or below a prefix of one.

The account and its credentials come from the variables that Azure's tools use: `AZURE_STORAGE_ACCOUNT_NAME` with
`AZURE_STORAGE_ACCOUNT_KEY`, a SAS token, a client secret, a workload identity. `AZURE_STORAGE_ENDPOINT` names another server, such as
Azurite. Uploads are read back: Azure takes no CRC64NVME.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from trainwright.storage.errors import NoAccess
from trainwright.storage.objects.connection import ObjectConnection
from trainwright.storage.objects.lease import LEASE_SECONDS
from trainwright.storage.objects.object_store import ObjectStore
from trainwright.storage.objects.options import client_options, import_obstore, retry_options
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import without_credentials


class AzureStore(ObjectStore):
    """Implements `Store`."""

    def __init__(self, uri: StorageUri, *, lease_seconds: float = LEASE_SECONDS):
        connection = ObjectConnection(f"az://{uri.bucket}", functools.partial(_open_container, uri))
        super().__init__(uri, connection, lease_seconds=lease_seconds)


def _open_container(uri: StorageUri, retry_seconds: float, _sends_checksums: bool) -> Any:
    library = import_obstore("az")
    options = client_options(allow_http=os.environ.get("AZURE_STORAGE_ENDPOINT", "").startswith("http://"))
    try:
        return library.store.AzureStore(uri.bucket, client_options=options, retry_config=retry_options(retry_seconds))
    except (ValueError, library.exceptions.BaseError) as error:
        hint = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or a SAS token"
        raise NoAccess(f"{uri}: {without_credentials(error)}; {hint}") from None
