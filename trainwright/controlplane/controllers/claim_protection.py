"""Delays the deletion of a claim until no pod uses it, so that no running process loses its folder."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, POD
from trainwright.api.objects import Obj, is_deleting, name_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key


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
        if any(key in _claims_of(pod) and _may_run(pod) for pod in cluster.list(POD, namespace).items):
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


def _may_run(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
