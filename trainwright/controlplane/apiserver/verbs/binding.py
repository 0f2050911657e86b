"""The pods/binding subresource, with which the scheduler assigns pods to nodes."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.errors import Conflict
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter
from trainwright.controlplane.apiserver.wire.api_errors import UnknownReasonError


def bind_pod(writer: ObjectWriter, namespace: str, name: str, node: str) -> None:
    """Assign a pod to a node. Raises Conflict if it is already assigned, NotFound."""
    kind = kinds.POD
    if not node:
        raise UnknownReasonError("target.name: Required value")
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        bound = (old.object.get("spec") or {}).get("nodeName")
        if bound:
            details = {"name": name, "kind": "pods/binding"}
            why = f'pod {name} is already assigned to node "{bound}"'
            raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {why}', details=details)
        status = {name: value for name, value in (old.object.get("status") or {}).items() if name != "nominatedNodeName"}
        others = [entry for entry in status.get("conditions") or [] if entry.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": writer.now()}
        pod = {
            **old.object,
            "spec": {**old.object["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, scheduled]},
        }
        writer.put(kind, old, pod)
