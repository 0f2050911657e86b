"""Trims a TrainJob to its identity and state, to bound the memory of a process that waits for thousands of jobs. Pure."""

from __future__ import annotations

from trainwright.api.names import (
    AWAITED_BY_ANNOTATION,
    LOG_SHOWN_ANNOTATION,
    QUEUE_LABEL,
    STOPPED_EARLY_ANNOTATION,
    SUSPENDED_BY_ANNOTATION,
    VERDICT_ANNOTATION,
)
from trainwright.api.objects import Obj

_JOB_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_ANNOTATIONS = (
    STOPPED_EARLY_ANNOTATION,
    AWAITED_BY_ANNOTATION,
    LOG_SHOWN_ANNOTATION,
    SUSPENDED_BY_ANNOTATION,
    VERDICT_ANNOTATION,
)


def trim_trainjob(trainjob: Obj) -> Obj:
    """Return what phase, progress, deadlines, an early stop and the waiting task need; for more, callers read the job again."""
    metadata = {name: trainjob["metadata"][name] for name in _JOB_METADATA if name in trainjob["metadata"]}
    if (queue := (trainjob["metadata"].get("labels") or {}).get(QUEUE_LABEL)) is not None:
        metadata["labels"] = {QUEUE_LABEL: queue}
    annotations = trainjob["metadata"].get("annotations") or {}
    if kept := {key: annotations[key] for key in _ANNOTATIONS if annotations.get(key)}:
        metadata["annotations"] = kept
    trimmed: Obj = {"metadata": metadata, "spec": {"suspend": True} if (trainjob.get("spec") or {}).get("suspend") else {}}
    if trainjob.get("status"):
        trimmed["status"] = trainjob["status"]
    return trimmed
