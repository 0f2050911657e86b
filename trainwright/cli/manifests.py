"""Reads manifests from files on the command line, `-` is standard input, validates them, and tries them on a server.

In a server dry run, a TrainJob is checked against the runtime of the same file, which the server does not have yet.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.documents import load_documents
from trainwright.api.errors import BadRequest, Forbidden, Invalid
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cli.errors import WarningPrinter
from trainwright.cluster.protocol import FieldValidation, OnWarning
from trainwright.jobs.credentials.secret_detection import LiteralSecret, manifest_problems
from trainwright.jobs.submit.create_object import create_object
from trainwright.migration import MigrationResult, is_legacy, migrate
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import MAX_BYTES, decoded

_UNKNOWN = "FieldUnknown"
RUNTIME_MISSING = "must be created before the TrainJob is created"
"""In the rejection by Trainer's webhook."""


class Validate(enum.StrEnum):
    """What happens to unknown fields, as kubectl calls it."""

    strict = "strict"
    warn = "warn"
    ignore = "ignore"

    @property
    def field_validation(self) -> FieldValidation:
        values: dict[Validate, FieldValidation] = {
            Validate.strict: "Strict",
            Validate.warn: "Warn",
            Validate.ignore: "Ignore",
        }
        return values[self]


ValidateOption = Annotated[
    Validate,
    typer.Option(
        "--validate",
        help="Unknown fields of manifests: strict rejects them, warn drops them with a warning, ignore drops them. "
        "The cluster decides what it knows; in a client dry run, this version of Trainwright does.",
    ),
]


def read_manifests(files: list[str]) -> list[Obj]:
    """Return all objects of all files, in order.

    Raises Unreadable for a text that is none, and BadRequest naming a file that cannot be read or parsed, or the files if they
    contain no objects.
    """
    objects = [obj for file in files for obj in load_documents(read_text(file), file)]
    if files and not objects:
        raise BadRequest(f"{', '.join(files)}: no objects")
    return objects


def read_text(file: str) -> str:
    """Return the text of a file, as far as `decoded` accepts it. Raises Unreadable, and BadRequest naming it if it cannot be read."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"{file}: {error.strerror or error}") from error
    except ValueError:  # a null character
        raise BadRequest(f"{file!r}: not a file name") from None
    return decoded(data, file)


def checked_documents(files: list[str], warnings: WarningPrinter, field_validation: FieldValidation = "Ignore") -> list[Obj]:
    """Read, migrate and validate manifests with at least one TrainJob; prints warnings.

    By default unknown fields are left to the server, whose version of the API may have them. Raises ApiError.
    """
    migrated = [
        migrate(document) if is_legacy(document) else MigrationResult([document], []) for document in read_manifests(files)
    ]
    for item in migrated:
        for note in item.notes:
            print(one_line(f"{name_of(item.objects[-1])}: {note}"), file=sys.stderr)
    documents = [obj for item in migrated for obj in item.objects]
    for document in documents:
        for warning in admit(document, context=AdmissionContext(strictness=field_validation)).warnings:
            warnings.of(document)(warning)
    if not any(document["kind"] == TRAINJOB.kind for document in documents):
        raise BadRequest("kind: no TrainJob among the documents")
    return documents


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
    if trainjob["kind"] != TRAINJOB.kind:  # nothing else refers to a runtime
        return None
    reference = trainjob["spec"]["runtimeRef"]
    kind = reference.get("kind") or "ClusterTrainingRuntime"
    for document in documents:
        here = kind == "ClusterTrainingRuntime" or namespace_of(document) == namespace_of(trainjob)
        if here and document["kind"] == kind and name_of(document) == reference["name"]:
            return admit(document, context=AdmissionContext(strictness="Ignore")).object
    return None


def reject_literal_secrets(documents: list[Obj]) -> None:
    """Raise LiteralSecret if manifests contain credentials: whoever may read the objects could read them."""
    problems = [
        replace(problem, hint="--allow-literal-secrets submits it anyway")
        for one in documents
        for problem in manifest_problems(one)
    ]
    if problems:
        raise LiteralSecret("; ".join(map(str, problems)), problems=problems)


def has_unknown_fields(document: Obj) -> bool:
    """Whether the object has fields that this version of Trainwright does not know."""
    return bool(_hints(document))


@contextmanager
def with_field_hints(document: Obj) -> Iterator[None]:
    """Add suggestions, which servers do not give, to errors about unknown fields of the object."""
    try:
        yield
    except Invalid as error:
        hints = _hints(document)
        error.problems = [
            problem if problem.hint else replace(problem, hint=hints.get(problem.field, "")) for problem in error.problems
        ]
        raise


def _hints(document: Obj) -> dict[str, str]:
    """Return the unknown fields of an object, each with a suggestion or an empty text."""
    try:
        admit(document)
    except Invalid as error:
        return {problem.field: problem.hint for problem in error.problems if problem.reason == _UNKNOWN}
    except BadRequest:  # another problem, which is reported elsewhere
        pass
    return {}
