"""Finds the files of a claim, `pvc://CLAIM/path`, where it is mounted in this process's container.

A volume shows no program which claim it is of. So a claim is looked for at `/mnt/claims/CLAIM`, or where the variable
TRAINWRIGHT_CLAIMS (`CLAIM=/path,...`) says; steps of a TrainJob have it where they mount a claim.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainwright.api import names
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri


def mounted(uri: StorageUri, environ: Mapping[str, str] = os.environ) -> StorageUri:
    """Return the `file://` URI of a path on a claim; any other URI as it is. Raises StorageError if the claim is not mounted."""
    if uri.scheme != "pvc":
        return uri
    known = dict(entry.split("=", 1) for entry in environ.get(names.CLAIMS_VARIABLE, "").split(",") if "=" in entry)
    root = Path(known.get(uri.bucket) or f"{names.CLAIMS_FOLDER}/{uri.bucket}")
    if not root.is_dir():
        raise StorageError(f"{uri}: the claim {uri.bucket} is not mounted at {root}; mount it there, read-only is enough")
    return StorageUri.from_path(root / uri.key)
