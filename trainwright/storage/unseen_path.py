"""Why a path that exists for its user may not exist here: pods see only their volumes, and a worker only its own disk."""

from __future__ import annotations

import os

from trainwright.storage.uri import StorageUri


def unseen_path_hint(uri: StorageUri, *, in_pod: bool | None = None) -> str:
    """Return the end of a sentence about a URI without what was expected there; empty for a store, and for a path that exists.

    `in_pod` defaults to whether Kubernetes has started this process.
    """
    if uri.scheme != "file" or os.path.exists(uri.path):
        return ""
    if in_pod is None:
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if not in_pod:
        return "; there is no such path on this machine"
    return (
        "; there is no such path in this pod, which sees the volumes that it mounts, and no disk of another machine: copy the files "
        "to a claim (pvc://CLAIM/FOLDER) or a store (s3://BUCKET/FOLDER), or prepare them in a step that sees the path, see "
        "docs/sources.md"
    )
