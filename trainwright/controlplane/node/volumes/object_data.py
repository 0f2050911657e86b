"""The contents of ConfigMaps and Secrets, and the words with which a kubelet reports what they lack."""

from __future__ import annotations

import base64

from trainwright.api.errors import NotFound
from trainwright.api.kinds import Kind
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
    except NotFound:
        return None


def not_found(kind: Kind, name: str) -> str:
    """`configmap "late" not found`, as a kubelet's caches report it."""
    return f'{kind.singular} "{name}" not found'
