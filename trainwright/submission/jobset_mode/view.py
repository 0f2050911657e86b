"""Derives the TrainJob that a JobSet represents, with the status that Trainer's controller would write, and its CRD. Pure."""

from __future__ import annotations

from functools import cache

from trainwright.api import names
from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.api.conditions import condition, set_condition
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, copy_of, labels_of, name_of
from trainwright.api.trainjob_status import set_from_jobset, set_suspended
from trainwright.submission.jobset_mode.record import RESERVED_KEYS, record_of

_KEPT = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
)


def trainjob_of(jobset: Obj) -> Obj:
    """Return the TrainJob, with the JobSet's UID, version, generation and times. Raises ApiError."""
    record = record_of(jobset)
    metadata: Obj = {field: jobset["metadata"][field] for field in _KEPT if field in jobset["metadata"]}
    for part, entries, others in (
        ("labels", labels_of(jobset), record.labels),
        ("annotations", annotations_of(jobset), record.annotations),
    ):
        if shown := {key: value for key, value in entries.items() if key not in RESERVED_KEYS and others.get(key) != value}:
            metadata[part] = shown
    spec = {**record.spec, "suspend": bool(jobset["spec"].get("suspend"))}
    trainjob: Obj = {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": spec}
    if status := _status(trainjob, jobset):
        trainjob["status"] = status
    return trainjob


def trainjob_definition() -> Obj:
    """Return a copy of the CRD of TrainJobs: without activeDeadlineSeconds, which JobSets lack; the client enforces deadlines."""
    return copy_of(_definition())


@cache
def _definition() -> Obj:
    (definition,) = (each for each in custom_resource_definitions() if name_of(each) == TRAINJOB.resource)
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["activeDeadlineSeconds"]
    return definition


def _status(trainjob: Obj, jobset: Obj) -> Obj:
    status: Obj = {}
    suspended = condition(jobset, "Suspended")
    now = str((suspended or {}).get("lastTransitionTime") or jobset["metadata"].get("creationTimestamp") or "")
    if suspended is not None and _generation(jobset) > _built_generation(jobset):
        # suspended at some time, and not only for its companions
        set_condition(status, "Suspended", True, "Suspended", "TrainJob is suspended", now)
    set_suspended({**trainjob, "status": status}, status, now)
    set_from_jobset(status, jobset, now)
    return status


def _generation(jobset: Obj) -> int:
    return int(jobset["metadata"].get("generation") or 1)


def _built_generation(jobset: Obj) -> int:
    text = annotations_of(jobset).get(names.COMPANIONS_CREATED_ANNOTATION) or ""
    return int(text) if text.isdecimal() else 1
