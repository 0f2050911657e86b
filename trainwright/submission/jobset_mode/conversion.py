"""Converts between a TrainJob and the JobSet that represents it: builds the JobSet, derives the TrainJob, and converts patches.

Pure, except for the keys that are passed in. The JobSet stores the TrainJob in an annotation, as JSON of bounded size; the derived
TrainJob has the status that Trainer's controller would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from trainwright.api import names
from trainwright.api.admission.crds import custom_resource_definitions
from trainwright.api.conditions import condition, set_condition, set_from_jobset, set_suspended
from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, annotations_of, copy_of, labels_of, name_of, owner_reference
from trainwright.api.phase import is_suspended_by_us
from trainwright.materialize import materialize
from trainwright.materialize.keys import Keys
from trainwright.submission.jobs_client import Built

_GROUP = "trainer.kubeflow.org"
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
_PRECONDITIONS = ("name", "namespace", "uid", "resourceVersion")
_ENTRY_FIELDS = ("labels", "annotations")
MAX_ANNOTATION_BYTES = 256 * 1024
"""Kubernetes' limit for all annotations of an object together, keys and values."""
RESERVED_KEYS = (names.SOURCE_KIND_LABEL, names.TRAINJOB_ANNOTATION, names.COMPANIONS_CREATED_ANNOTATION)
"""Labels and annotations of such a JobSet that its TrainJob does not have."""


def build_jobset(trainjob: Obj, runtime: Obj, *, keys: Keys | None = None) -> Built:
    """Build the objects of an admitted TrainJob.

    A JobSet that needs companions is created suspended, with the `suspended-by` annotation, so that submitting the same
    step again resumes it and creates missing companions. Not needed if it is suspended anyway, or waits for a queue.
    Raises Invalid.
    """
    _check_supported(trainjob)
    objects = materialize(trainjob, runtime, keys=keys)
    if not objects:
        raise _invalid(trainjob, "spec.managedBy", "in jobset mode no other manager can build the JobSet")
    *companions, jobset = objects
    for companion in companions:
        companion["metadata"].pop("ownerReferences", None)
    jobset["metadata"] = _metadata(trainjob, jobset, companions)
    if companions and not jobset["spec"]["suspend"] and names.QUEUE_LABEL not in labels_of(jobset):
        jobset["spec"]["suspend"] = True
        jobset["metadata"]["annotations"][names.SUSPENDED_BY_ANNOTATION] = names.suspended_by_us(1)
    # Only the JobSet stores the job's result: if it were deleted, a late retry would create the job again.
    jobset["spec"].pop("ttlSecondsAfterFinished", None)
    check_size(jobset)
    return Built(trainjob, jobset, companions)


def awaits_companions(jobset: Obj) -> bool:
    """Whether the JobSet is still suspended for its companions: unchanged since Trainwright created it."""
    return is_suspended_by_us(jobset) and jobset["metadata"].get("generation") == 1


def companion_key(companion: Obj) -> tuple[str, str, str]:
    """Return API version, kind and name, as in `Record.companions`."""
    return companion["apiVersion"], companion["kind"], name_of(companion)


def owned_by(jobset: Obj, companion: Obj) -> Obj:
    """Return the companion with an owner reference to its JobSet.

    It does not block the JobSet's deletion: with the OwnerReferencesPermissionEnforcement admission plugin that would require
    permissions on finalizers.
    """
    reference = {**owner_reference(jobset), "blockOwnerDeletion": False}
    return {**companion, "metadata": {**companion["metadata"], "ownerReferences": [reference]}}


def _metadata(trainjob: Obj, jobset: Obj, companions: list[Obj]) -> Obj:
    labels, annotations = labels_of(jobset), annotations_of(jobset)
    record = Record(
        spec={field: value for field, value in trainjob["spec"].items() if field != "suspend"},
        labels=_without(labels, labels_of(trainjob)),
        annotations=_without(annotations, annotations_of(trainjob)),
        companions=tuple(companion_key(companion) for companion in companions),
    )
    metadata = {
        "name": name_of(trainjob),
        "namespace": jobset["metadata"]["namespace"],
        "labels": {**labels, **labels_of(trainjob), names.SOURCE_KIND_LABEL: "TrainJob"},
        "annotations": {**annotations, **annotations_of(trainjob), names.TRAINJOB_ANNOTATION: record.as_text()},
    }
    for name in ("ownerReferences", "finalizers"):
        if trainjob["metadata"].get(name):
            metadata[name] = trainjob["metadata"][name]
    return metadata


def _without(entries: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in entries.items() if key not in others}


def _check_supported(trainjob: Obj) -> None:
    if trainjob["spec"].get("activeDeadlineSeconds"):
        message = "JobSets have no deadline: in jobset mode the waiting client enforces it (`trainwright wait --timeout`)"
        raise _invalid(trainjob, "spec.activeDeadlineSeconds", message)
    for reserved in (names.TRAINJOB_ANNOTATION, names.COMPANIONS_CREATED_ANNOTATION):
        if reserved in annotations_of(trainjob):
            raise _invalid(trainjob, f"metadata.annotations[{reserved}]", "it is reserved for JobSets")


def _invalid(trainjob: Obj, field: str, reason: str) -> Invalid:
    return Invalid.of("TrainJob", name_of(trainjob), [Problem(field, f"Forbidden: {reason}", "FieldValueForbidden")], _GROUP)


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


def jobset_patch(name: str, patch: Obj) -> Obj:
    """Return the merge patch of the JobSet for a merge patch of its TrainJob.

    Only labels, annotations and `spec.suspend` can be changed: the jobs of a JobSet are immutable. Raises Invalid.
    """
    if problems := list(_problems(patch)):
        raise Invalid.of("TrainJob", name, problems, "trainer.kubeflow.org")
    metadata = {
        field: value for field, value in (patch.get("metadata") or {}).items() if field in (*_PRECONDITIONS, *_ENTRY_FIELDS)
    }
    spec = {"spec": {"suspend": bool(patch["spec"]["suspend"])}} if "suspend" in (patch.get("spec") or {}) else {}
    return {**({"metadata": metadata} if metadata else {}), **spec}


def resumes(patch: Obj) -> bool:
    """Whether a JobSet patch sets `suspend` to false."""
    return (patch.get("spec") or {}).get("suspend") is False


def _problems(patch: Obj) -> Iterator[Problem]:
    for name, value in patch.items():
        if name in ("apiVersion", "kind"):
            continue
        if name not in ("metadata", "spec") or not isinstance(value, dict):
            yield _forbidden(name)
            continue
        known = (*_PRECONDITIONS, *_ENTRY_FIELDS) if name == "metadata" else ("suspend",)
        for inner, entries in value.items():
            if inner not in known:
                yield _forbidden(f"{name}.{inner}")
            elif inner in _ENTRY_FIELDS:
                yield from _entry_problems(f"{name}.{inner}", entries)


def _entry_problems(path: str, entries: Any) -> Iterator[Problem]:
    if not isinstance(entries, dict):  # null would remove the JobSet's own entries
        yield _forbidden(path)
        return
    for key in entries:
        if key in RESERVED_KEYS:
            yield _forbidden(f"{path}[{key}]")


def _forbidden(path: str) -> Problem:
    reason = "in jobset mode only labels, annotations and spec.suspend can be changed: delete the job and submit it again"
    return Problem(path, f"Forbidden: {reason}", "FieldValueForbidden")


@dataclass(frozen=True)
class Record:
    """`spec` is the TrainJob's spec without `suspend`, which is stored in the JobSet's spec.

    `labels` and `annotations` are those that the JobSet has from its runtime, which are not part of the TrainJob.
    """

    spec: Obj
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    companions: tuple[tuple[str, str, str], ...] = ()
    """API version, kind and name of the objects that the JobSet's pods need."""

    def as_text(self) -> str:
        return orjson.dumps(
            {"spec": self.spec, "labels": self.labels, "annotations": self.annotations, "companions": self.companions}
        ).decode()


def carries_trainjob(jobset: Obj) -> bool:
    """Whether the JobSet represents a TrainJob."""
    return labels_of(jobset).get(names.SOURCE_KIND_LABEL) == "TrainJob" and names.TRAINJOB_ANNOTATION in annotations_of(jobset)


def record_of(jobset: Obj) -> Record:
    """Return the record of a JobSet. Raises ApiError if the annotation is invalid."""
    try:
        stored = orjson.loads(annotations_of(jobset)[names.TRAINJOB_ANNOTATION])
        spec = stored["spec"]
        if not isinstance(spec, dict) or not isinstance(spec["runtimeRef"]["name"], str):
            raise ValueError("it has no spec with a runtime")
        companions = tuple((str(version), str(kind), str(name)) for version, kind, name in stored["companions"])
        return Record(spec, dict(stored["labels"]), dict(stored["annotations"]), companions)
    except (KeyError, TypeError, ValueError) as error:
        raise ApiError(
            f"the JobSet {name_of(jobset)} stores its TrainJob in the annotation {names.TRAINJOB_ANNOTATION}, "
            f"which cannot be read: {error}"
        ) from error


def check_size(jobset: Obj) -> None:
    """Raise Invalid if the annotations exceed the limit of the API server."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations_of(jobset).items())
    if size > MAX_ANNOTATION_BYTES:
        message = (
            f"Too long: {size} bytes of annotations, at most {MAX_ANNOTATION_BYTES} are allowed: in jobset mode an annotation of "
            "the JobSet stores the TrainJob. Put long commands and values into a ConfigMap or the image"
        )
        raise Invalid.of("TrainJob", name_of(jobset), [Problem("spec", message, "FieldValueTooLong")], "trainer.kubeflow.org")
