"""What of a TrainJob somebody who waits for thousands of them keeps: where it stands, and which one it is. Pure."""

from __future__ import annotations

from trainwright.api.names import QUEUE_LABEL
from trainwright.api.objects import Obj

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def glimpse(trainjob: Obj) -> Obj:
    """Enough for phase, progress and deadlines; all else is read again by whoever needs it."""
    metadata = {name: trainjob["metadata"][name] for name in _METADATA if name in trainjob["metadata"]}
    if (queue := (trainjob["metadata"].get("labels") or {}).get(QUEUE_LABEL)) is not None:
        metadata["labels"] = {QUEUE_LABEL: queue}
    seen: Obj = {"metadata": metadata, "spec": {"suspend": True} if (trainjob.get("spec") or {}).get("suspend") else {}}
    if trainjob.get("status"):
        seen["status"] = trainjob["status"]
    return seen
