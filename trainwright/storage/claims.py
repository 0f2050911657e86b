"""Finds the files of a claim, `pvc://CLAIM/path`, where it is mounted in this process's container.

A volume shows no program which claim it is of. So a claim is looked for at `/mnt/claims/CLAIM`, or where the variable
TRAINWRIGHT_CLAIMS (`CLAIM=/path,...`) says; steps of a TrainJob have it where they mount a claim.

Why a path that exists for its user may not exist here: pods see only their volumes, and a worker only its own disk.
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


def unseen_path_hint(uri: StorageUri, *, in_pod: bool | None = None) -> str:
    """Return the end of a sentence about a URI without what was expected there; empty for a store, and for a path that exists.

    `in_pod` defaults to whether Kubernetes has started this process.
    """
    if uri.scheme != "file" or os.path.exists(uri.path):
        return ""
    if in_pod is None:
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if not in_pod:  # no volume is missing here
        return "; there is no such path on this machine"
    return (
        "; there is no such path in this pod, which sees the volumes that it mounts, and no disk of another machine: copy the files "
        "to a claim (pvc://CLAIM/FOLDER) or a store (s3://BUCKET/FOLDER), or prepare them in a step that sees the path, see "
        "docs/sources.md"
    )
