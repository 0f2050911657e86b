"""What a JobSet carries of the TrainJob that it stands for: one annotation, as JSON, of bounded size. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from trainwright.api import names
from trainwright.api.errors import ApiError, Invalid, Problem
from trainwright.api.objects import Obj, annotations_of, labels_of, name_of

MAX_ANNOTATION_BYTES = 256 * 1024
"""All annotations of an object together, keys and values (Kubernetes' own limit)."""


@dataclass(frozen=True)
class Record:
    """`spec` is the TrainJob's without `suspend`, which is the JobSet's own to say.

    `labels` and `annotations` are those that the JobSet has from its runtime, and the TrainJob therefore has not.
    """

    spec: Obj
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    companions: tuple[tuple[str, str, str], ...] = ()
    """API version, kind and name of the objects that the JobSet's pods need beside it."""

    def as_text(self) -> str:
        return orjson.dumps(
            {"spec": self.spec, "labels": self.labels, "annotations": self.annotations, "companions": self.companions}
        ).decode()


def carries_trainjob(jobset: Obj) -> bool:
    """Whether the JobSet was made in a TrainJob's place."""
    labels = labels_of(jobset)
    source = labels.get(names.SOURCE_KIND_LABEL, labels.get(names.LEGACY[names.SOURCE_KIND_LABEL]))
    return source == "TrainJob" and names.TRAINJOB_ANNOTATION in annotations_of(jobset)


def record_of(jobset: Obj) -> Record:
    """What the JobSet carries. Raises ApiError where somebody has spoilt it."""
    try:
        stored = orjson.loads(annotations_of(jobset)[names.TRAINJOB_ANNOTATION])
        spec = stored["spec"]
        if not isinstance(spec, dict) or not isinstance(spec["runtimeRef"]["name"], str):
            raise ValueError("it has no spec with a runtime")
        companions = tuple((str(version), str(kind), str(name)) for version, kind, name in stored["companions"])
        return Record(spec, dict(stored["labels"]), dict(stored["annotations"]), companions)
    except (KeyError, TypeError, ValueError) as error:
        raise ApiError(
            f"the JobSet {name_of(jobset)} carries a TrainJob in its annotation {names.TRAINJOB_ANNOTATION} "
            f"that cannot be read: {error}"
        ) from error


def check_size(jobset: Obj) -> None:
    """Raises Invalid where the annotations are more than an API server takes."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations_of(jobset).items())
    if size > MAX_ANNOTATION_BYTES:
        message = (
            f"Too long: {size} bytes of annotations, {MAX_ANNOTATION_BYTES} may be: in jobset mode the TrainJob is kept in one of its JobSet. "
            "Put long commands and values into a ConfigMap or the image"
        )
        raise Invalid.of("TrainJob", name_of(jobset), [Problem("spec", message, "FieldValueTooLong")], "trainer.kubeflow.org")
