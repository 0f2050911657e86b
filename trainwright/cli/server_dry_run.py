"""Server dry runs of manifests: a TrainJob is checked against the runtime of the same file, which the server does not have yet."""

from __future__ import annotations

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.protocol import FieldValidation, OnWarning
from trainwright.jobs.submit.create_object import create_object
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobs_client import JobsClient

RUNTIME_MISSING = "must be created before the TrainJob is created"
"""In the rejection by Trainer's webhook."""


def dry_run_create(
    cluster: JobsClient,
    document: Obj,
    earlier: list[Obj],
    *,
    field_validation: FieldValidation,
    on_warning: OnWarning,
) -> Obj:
    """Return the object as the cluster would store it.

    Args:
        cluster: where the dry run takes place.
        document: the object, with its namespace.
        earlier: the objects before it in the files, which would have been created when it is.
        field_validation: what happens to unknown fields.
        on_warning: receives the warnings.

    Raises the errors of `create_object`, and Invalid for a TrainJob that does not suit its runtime among `earlier`.
    """
    try:
        return create_object(cluster, document, dry_run=True, field_validation=field_validation, on_warning=on_warning)
    except (Forbidden, RuntimeNotFound) as error:
        runtime = runtime_among(earlier, document)
        if runtime is None or (isinstance(error, Forbidden) and RUNTIME_MISSING not in error.message):
            raise
    return cluster.dry_run(document, runtime, strictness=field_validation, on_warning=on_warning)


def runtime_among(documents: list[Obj], trainjob: Obj) -> Obj | None:
    """Return the admitted runtime of a TrainJob, if it is among the documents. Raises Invalid."""
    if trainjob["kind"] != TRAINJOB.kind:
        return None
    reference = trainjob["spec"]["runtimeRef"]
    kind = reference.get("kind") or "ClusterTrainingRuntime"
    for document in documents:
        here = kind == "ClusterTrainingRuntime" or namespace_of(document) == namespace_of(trainjob)
        if here and document["kind"] == kind and name_of(document) == reference["name"]:
            return admit(document, context=AdmissionContext(strictness="Ignore")).object
    return None
