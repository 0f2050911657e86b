"""Trims a TrainJob to its identity and state, to bound the memory of a process that waits for thousands of jobs. Pure."""

from __future__ import annotations

from trainwright.api.names import QUEUE_LABEL, STOPPED_EARLY_ANNOTATION
from trainwright.api.objects import Obj

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def trim_trainjob(trainjob: Obj) -> Obj:
    """Return only what phase, progress, deadlines and an early stop need; callers that need more read the job again."""
    metadata = {name: trainjob["metadata"][name] for name in _METADATA if name in trainjob["metadata"]}
    if (queue := (trainjob["metadata"].get("labels") or {}).get(QUEUE_LABEL)) is not None:
        metadata["labels"] = {QUEUE_LABEL: queue}
    if reason := (trainjob["metadata"].get("annotations") or {}).get(STOPPED_EARLY_ANNOTATION):
        metadata["annotations"] = {STOPPED_EARLY_ANNOTATION: reason}
    trimmed: Obj = {"metadata": metadata, "spec": {"suspend": True} if (trainjob.get("spec") or {}).get("suspend") else {}}
    if trainjob.get("status"):
        trimmed["status"] = trainjob["status"]
    return trimmed
