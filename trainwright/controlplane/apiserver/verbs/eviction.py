"""The pods/eviction subresource: marks a pod as disrupted, then deletes it. There is no node or budget that could refuse."""

from __future__ import annotations

from trainwright.api import kinds
from trainwright.api.objects import is_deleting
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter

CONDITION = "DisruptionTarget"


def mark_evicted(writer: ObjectWriter, namespace: str, name: str) -> None:
    """Set the condition DisruptionTarget of a pod that is neither finished nor being deleted. Raises NotFound.

    Policies for failed pods look at it: an eviction is nothing that the pod's program has done.
    """
    kind = kinds.POD
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        status = old.object.get("status") or {}
        if is_deleting(old.object) or status.get("phase") in ("Succeeded", "Failed"):
            return
        others = [entry for entry in status.get("conditions") or [] if entry.get("type") != CONDITION]
        marked = {
            "type": CONDITION,
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": writer.now(),
        }
        writer.put(kind, old, {**old.object, "status": {**status, "conditions": [*others, marked]}})
