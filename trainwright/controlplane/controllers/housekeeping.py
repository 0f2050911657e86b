"""What kube-controller-manager does, apart from Jobs and garbage: old Events, deleted pods without a node, and claims.

Events are deleted an hour after they were last written, so that they do not accumulate. Deleted pods without a node are marked as
Failed, since no kubelet does it. A claim is kept until no pod uses it, so that no running process loses its folder, and names its
folder on this machine, for steps that run beside the cluster and mount nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from trainwright.api import names
from trainwright.api.errors import Conflict, NotFound
from trainwright.api.kinds import CLAIM, EVENT, POD
from trainwright.api.objects import Obj, annotations_of, is_deleting, name_of, namespace_of, uid_of
from trainwright.api.times import seconds_between
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.host_paths import take_folder

LIFETIME_SECONDS = 3600.0


def event_expiry(cluster: Cluster, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Controller:
    """Delete Events an hour after their last write: the later of creation and last occurrence, which may precede the creation."""

    def seconds_left(event: Obj) -> float:
        times = (event["metadata"]["creationTimestamp"], event.get("lastTimestamp"), event.get("eventTime"))
        return LIFETIME_SECONDS - min(seconds_between(time, clock()) for time in times if time)

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            left = seconds_left(cluster.get(EVENT, name, namespace))
            if left > 0:
                return left  # written again since it was queued
            cluster.delete(EVENT, name, namespace)
        except NotFound:  # deleted by somebody else
            return None
        return None

    return Controller("event-expiry", reconcile, {EVENT: object_key}, delays={EVENT: lambda _change, event: seconds_left(event)})


def pod_removal(cluster: Cluster) -> Controller:
    """Mark deleted pods without a node as Failed, like Kubernetes' pod garbage collector.

    Otherwise a Job that replaces only failed pods would wait forever for a pod with a finalizer.
    """

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            pod = cluster.get(POD, name, namespace)
        except NotFound:  # deleted: nobody waits for it any more
            return None
        if _is_unscheduled_deletion(pod):
            patch = {"metadata": {"uid": uid_of(pod)}, "status": {"phase": "Failed"}}
            cluster.patch(POD, name, patch, namespace, subresource="status")
        return None

    return Controller("pod-removal", reconcile, {POD: lambda pod: object_key(pod) if _is_unscheduled_deletion(pod) else []})


def _is_unscheduled_deletion(pod: Obj) -> bool:
    is_terminal = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return is_deleting(pod) and not pod["spec"].get("nodeName") and not is_terminal


def claim_folders(cluster: Cluster, claims: Path) -> Controller:
    """Annotate claims that have no folder with the one in `claims`, and create that."""

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            claim = cluster.get(CLAIM, name, namespace)
            if is_deleting(claim) or names.HOST_PATH_ANNOTATION in annotations_of(claim):
                return None  # it is being deleted, or has a folder: its author may have chosen one
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
    """Remove the finalizer of a deleted claim when no pod uses it any more."""

    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            claim = cluster.get(CLAIM, name, namespace)
        except NotFound:  # deleted: nothing is left to protect
            return None
        finalizers = claim["metadata"].get("finalizers") or []
        if not is_deleting(claim) or names.CLAIM_PROTECTION not in finalizers:
            return None  # not deleted, or not protected any more
        if any(
            key in _claims_of(pod) and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            for pod in cluster.list(POD, namespace).items
        ):
            return None  # in use: the end of the pod enqueues the claim again
        kept = [entry for entry in finalizers if entry != names.CLAIM_PROTECTION]
        patch = {"metadata": {"finalizers": kept or None, "resourceVersion": claim["metadata"]["resourceVersion"]}}
        cluster.patch(CLAIM, name_of(claim), patch, namespace)
        return None

    return Controller("claim-protection", reconcile, {CLAIM: object_key, POD: _claims_of})


def _claims_of(pod: Obj) -> list[Key]:
    volumes = pod["spec"].get("volumes") or []
    claims = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes]
    return [(namespace_of(pod), claim) for claim in claims if claim]
