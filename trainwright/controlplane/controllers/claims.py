"""The controllers of claims.

One says on each claim which folder of this machine it is, for steps that run beside the cluster and mount nothing. The other delays
the deletion of a claim until no pod uses it, so that no running process loses its folder.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import CLAIM, POD
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of
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


def claim_protection(cluster: Cluster) -> Controller:
    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            claim = cluster.get(CLAIM, name, namespace)
        except NotFound:
            return None
        finalizers = claim["metadata"].get("finalizers") or []
        if not is_deleting(claim) or names.CLAIM_PROTECTION not in finalizers:
            return None
        if any(
            key in _claims_of(pod) and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            for pod in cluster.list(POD, namespace).items
        ):
            return None
        kept = [entry for entry in finalizers if entry != names.CLAIM_PROTECTION]
        patch = {"metadata": {"finalizers": kept or None, "resourceVersion": claim["metadata"]["resourceVersion"]}}
        cluster.patch(CLAIM, name_of(claim), patch, namespace)
        return None

    return Controller("claim-protection", reconcile, {CLAIM: object_key, POD: _claims_of})


def _claims_of(pod: Obj) -> list[Key]:
    volumes = pod["spec"].get("volumes") or []
    claims = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes]
    return [(namespace_of(pod), claim) for claim in claims if claim]
