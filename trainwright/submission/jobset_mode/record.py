"""The annotation in which a JobSet stores the TrainJob that it represents, as JSON of bounded size. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from trainwright.api import names
from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of

MAX_ANNOTATION_BYTES = 256 * 1024
"""Kubernetes' limit for all annotations of an object together, keys and values."""
RESERVED_KEYS = (names.SOURCE_KIND_LABEL, names.TRAINJOB_ANNOTATION, names.COMPANIONS_CREATED_ANNOTATION)
"""Labels and annotations of such a JobSet that its TrainJob does not have."""


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
