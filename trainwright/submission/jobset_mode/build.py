"""Builds the JobSet that represents a TrainJob, and its companion objects. Pure, except for the keys that are passed in."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of, owner_reference
from trainwright.materialize import materialize
from trainwright.materialize.keys import Keys
from trainwright.submission.jobs_client import Built
from trainwright.submission.jobset_mode.record import Record, check_size
from trainwright.submission.suspension import is_suspended_by_us

_GROUP = "trainer.kubeflow.org"


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
    for field in ("ownerReferences", "finalizers"):
        if trainjob["metadata"].get(field):
            metadata[field] = trainjob["metadata"][field]
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
