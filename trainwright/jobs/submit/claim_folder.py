"""Where a claim is on this machine: steps beside an embedded cluster mount nothing, and use its folder instead."""

from __future__ import annotations

import time
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import CLAIM
from trainwright.api.objects import annotations_of
from trainwright.cluster.protocol import Cluster
from trainwright.submission import JobsClient

MOUNT = "/workspace"
"""Where pods of steps mount a claim, unless another path is given."""
_FOLDER_SECONDS, _FOLDER_POLL_SECONDS = 10.0, 0.05
"""Within this time an embedded cluster says which folder a new claim is."""


def path_of_steps(cluster: Cluster, claim: str, namespace: str, workspace_path: str) -> str:
    """Return where the steps of a run have a claim: its folder on this machine, unless they mount it at another path than `MOUNT`."""
    return (claim_folder(cluster, claim, namespace) if workspace_path in ("", MOUNT) else "") or workspace_path


def claim_folder(cluster: Cluster, claim: str, namespace: str) -> str:
    """Return the claim's folder if the cluster is an embedded one of this machine, and this is not a pod; else an empty string.

    A pod has the claim at `MOUNT`. A machine may have a folder of this name, too, which is something else.
    """
    try:
        if not JobsClient.of(cluster).is_embedded():
            return ""
        deadline = time.monotonic() + _FOLDER_SECONDS
        while not (folder := annotations_of(cluster.get(CLAIM, claim, namespace)).get(names.HOST_PATH_ANNOTATION, "")):
            if time.monotonic() > deadline:
                return ""
            time.sleep(_FOLDER_POLL_SECONDS)
        return folder if Path(folder).is_dir() and not (Path(MOUNT).is_dir() and Path(MOUNT).samefile(folder)) else ""
    except (Forbidden, NotFound, PermissionError):
        return ""
