"""What pods refer to: the contents of ConfigMaps and Secrets, and the errors of what they lack, in the words of a kubelet.

A missing reference is one of two errors: a volume cannot be mounted, or a container cannot be configured. A kubelet tells them apart
too: the first is an Event of the pod, the second also the waiting reason of one container.
"""

from __future__ import annotations

import base64

from trainwright.api.errors import NotFound
from trainwright.api.kinds import NODE, Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster


def decode_data(obj: Obj) -> dict[str, bytes]:
    """Return all contents of a ConfigMap or Secret as bytes."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    return text_data(obj) | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def text_data(obj: Obj) -> dict[str, bytes]:
    """Return what becomes variables: a kubelet takes the `data` of a ConfigMap only, not its `binaryData`."""
    if obj.get("kind") == "Secret":
        return decode_data(obj)
    return {key: value.encode() for key, value in (obj.get("data") or {}).items()}


def get_or_none(cluster: Cluster, kind: Kind, name: str, namespace: str | None) -> Obj | None:
    """Return the object with its kind set, or None if it does not exist."""
    try:
        return {**cluster.get(kind, name, namespace), "kind": kind.kind}
    except NotFound:  # up to the caller, who knows whether it is optional
        return None


def allocatable_of(cluster: Cluster, pod: Obj) -> Obj:
    """Return the allocatable resources of the pod's node, which stand in for limits that a container does not have."""
    node = get_or_none(cluster, NODE, pod["spec"].get("nodeName") or "", None)
    return ((node or {}).get("status") or {}).get("allocatable") or {}


def not_found(kind: Kind, name: str) -> str:
    """`configmap "late" not found`, as a kubelet's caches report it."""
    return f'{kind.singular} "{name}" not found'


class VolumeError(Exception):
    """A volume cannot be made. The message is the kubelet's; `volume` is the name of the volume in the pod.

    The kubelet's event is `MountVolume.SetUp failed for volume "VOLUME" : MESSAGE`, with the reason FailedMount.
    """

    def __init__(self, message: str, volume: str = ""):
        super().__init__(message)
        self.volume = volume


class ConfigError(Exception):
    """A container cannot be configured: reason CreateContainerConfigError, and the kubelet's message."""
