"""Says on each claim which folder of this machine it is, for steps that run beside the cluster and mount nothing."""

from __future__ import annotations

from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import CLAIM
from trainwright.api.objects import annotations_of, is_deleting
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.host_paths import take_folder


def claim_folders(cluster: Cluster, claims: Path) -> Controller:
    """Annotate claims that have no folder with the one in `claims`, and create that."""

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            claim = cluster.get(CLAIM, name, namespace)
            if is_deleting(claim) or names.HOST_PATH_ANNOTATION in annotations_of(claim):
                return None
            folder = claims / namespace / name  # as the node takes it
            take_folder(claim, folder, claims)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            metadata = {
                "annotations": {names.HOST_PATH_ANNOTATION: str(folder.absolute())},
                "resourceVersion": claim["metadata"]["resourceVersion"],
            }
            cluster.patch(CLAIM, name, {"metadata": metadata}, namespace)
        except (NotFound, Conflict):  # it is gone, or comes again
            return None
        return None

    return Controller("claim-folders", reconcile, {CLAIM: object_key})
