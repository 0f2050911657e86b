"""A pod that is deleted before it has a node has nobody who would say that it ended: it is failed here, as the pod collector does.

Without that a Job that replaces only what has failed would wait for ever for a pod that a finalizer keeps.
"""

from __future__ import annotations

from trainwright.api.errors import NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, own_key
from trainwright.controlplane.controllers.queue import Key


def pod_removal(cluster: Cluster) -> Controller:
    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            pod = cluster.get(POD, name, namespace)
        except NotFound:
            return None
        if _has_nobody(pod):
            patch = {"metadata": {"uid": uid_of(pod)}, "status": {"phase": "Failed"}}
            cluster.patch(POD, name, patch, namespace, subresource="status")
        return None

    return Controller("pod-removal", reconcile, {POD: lambda pod: own_key(pod) if _has_nobody(pod) else []})


def _has_nobody(pod: Obj) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return is_deleting(pod) and not pod["spec"].get("nodeName") and not ended
