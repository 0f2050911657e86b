"""Binding a pod to a node: what a scheduler writes, once for each pod."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.errors import Conflict
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter
from trainwright.controlplane.apiserver.wire.api_errors import Unspecified


def bind_pod(writer: ObjectWriter, namespace: str, name: str, node: str) -> None:
    """Give a pod its node, once. Raises Conflict when it has one, NotFound."""
    kind = kinds.POD
    if not node:
        raise Unspecified("target.name: Required value")
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        bound = (old.object.get("spec") or {}).get("nodeName")
        if bound:
            details = {"name": name, "kind": "pods/binding"}
            why = f'pod {name} is already assigned to node "{bound}"'
            raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {why}', details=details)
        status = old.object.get("status") or {}
        others = [entry for entry in status.get("conditions") or [] if entry.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": writer.now()}
        pod = {
            **old.object,
            "spec": {**old.object["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, scheduled]},
        }
        writer.put(kind, old, pod)
