"""Marks deleted pods without a node as Failed, like Kubernetes' pod garbage collector, since no kubelet does it.

Otherwise a Job that replaces only failed pods would wait forever for a pod with a finalizer.
"""

from __future__ import annotations

from trainwright.api.errors import NotFound
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.controller import Controller, object_key
from trainwright.controlplane.controllers.queue import Key


def pod_removal(cluster: Cluster) -> Controller:
    def reconcile(key: Key) -> float | None:
        namespace, name = key
        try:
            pod = cluster.get(POD, name, namespace)
        except NotFound:
            return None
        if _is_unscheduled_deletion(pod):
            patch = {"metadata": {"uid": uid_of(pod)}, "status": {"phase": "Failed"}}
            cluster.patch(POD, name, patch, namespace, subresource="status")
        return None

    return Controller("pod-removal", reconcile, {POD: lambda pod: object_key(pod) if _is_unscheduled_deletion(pod) else []})


def _is_unscheduled_deletion(pod: Obj) -> bool:
    is_terminal = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return is_deleting(pod) and not pod["spec"].get("nodeName") and not is_terminal
