"""What a pod needs to reach the API server as its service account: a token, the authority's certificate and its namespace.

A cluster's ServiceAccount admission adds this volume to the pod; here the node does, and the pod's spec stays as it was written.
Source of paths, life and rules: plugin/pkg/admission/serviceaccount of Kubernetes.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.api import names
from trainwright.api.kinds import SERVICE_ACCOUNT
from trainwright.api.objects import Obj, account_of, namespace_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.isolation.plan import ContainerMount
from trainwright.controlplane.node.volumes.object_data import get_or_none

VOLUME = "kube-api-access"
AUTHORITY_CONFIG_MAP = "kube-root-ca.crt"
_SECONDS = 3607


def api_access_volumes(cluster: Cluster, pod: Obj) -> list[Obj]:
    """Return the volume, or nothing if the pod or its service account does not want it, or the pod has one of this name."""
    wanted = pod["spec"].get("automountServiceAccountToken")
    if wanted is None:
        account = get_or_none(cluster, SERVICE_ACCOUNT, account_of(pod), namespace_of(pod)) or {}
        wanted = account.get("automountServiceAccountToken")
    if wanted is False or any(volume["name"] == VOLUME for volume in pod["spec"].get("volumes") or []):
        return []
    token = {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}}
    authority = {"configMap": {"name": AUTHORITY_CONFIG_MAP, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    namespace = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    return [{"name": VOLUME, "projected": {"sources": [token, authority, namespace]}}]


def api_access_mounts(container: Obj, folder: Path | None) -> list[ContainerMount]:
    """Return the mount of the volume, if there is one, in a container that mounts nothing else there."""
    taken = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or []}
    return (
        []
        if folder is None or names.SERVICE_ACCOUNT_PATH in taken
        else [ContainerMount(names.SERVICE_ACCOUNT_PATH, folder, read_only=True)]
    )
