"""A store in a bucket of Google Cloud Storage, or below a prefix of one.

Credentials are Google's application default ones: `GOOGLE_APPLICATION_CREDENTIALS`, the gcloud login, the instance. An emulator is
used where `STORAGE_EMULATOR_HOST` names one, as by Google's own clients. Uploads are read back: its XML interface takes no CRC64NVME.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

from trainwright.storage.errors import NoAccess
from trainwright.storage.objects.connection import ObjectConnection
from trainwright.storage.objects.lease import LEASE_SECONDS
from trainwright.storage.objects.object_store import ObjectStore
from trainwright.storage.objects.options import client_options, import_obstore, retry_options
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import without_credentials

_NO_GENERATION = "1"


class GcsStore(ObjectStore):
    """Implements `Store`."""

    never_matches = _NO_GENERATION

    def __init__(self, uri: StorageUri, *, lease_seconds: float = LEASE_SECONDS):
        connection = ObjectConnection(f"gs://{uri.bucket}", functools.partial(_open_bucket, uri))
        super().__init__(uri, connection, lease_seconds=lease_seconds)

    def version_of(self, shown: Any) -> str:
        """Conditions name the generation of an object."""
        return str(shown["version"] or "")

    def condition(self, version: str) -> dict[str, str]:
        return {"version": version}


def _open_bucket(uri: StorageUri, retry_seconds: float, _sends_checksums: bool) -> Any:
    library = import_obstore("gs")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "").strip()
    address = emulator if "://" in emulator else f"http://{emulator}"
    # The key of a service account that needs no token, as obstore takes an emulator's address.
    anonymous = {"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    config = {"service_account_key": json.dumps(anonymous)} if emulator else {}
    options = client_options(allow_http=bool(emulator) and address.startswith("http://"))
    try:
        return library.store.GCSStore(
            uri.bucket, config=config, client_options=options, retry_config=retry_options(retry_seconds)
        )
    except (ValueError, library.exceptions.BaseError) as error:
        raise NoAccess(f"{uri}: {without_credentials(error)}; check GOOGLE_APPLICATION_CREDENTIALS") from None
