"""`trainwright materialize`: prints the objects that would be built from a TrainJob, without a cluster.

After the problems of a manifest of an earlier version, it suggests `trainwright migrate`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cli.errors import bad_input_exits
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format, print_object
from trainwright.materialize import materialize
from trainwright.migration import is_outdated
from trainwright.runtimes import resolve_runtime
from trainwright.text.foreign_texts import one_line

Files = Annotated[
    list[str], typer.Option("-f", "--filename", metavar="FILE", help="Manifest file, - for standard input; repeatable.")
]


def register(app: typer.Typer) -> None:
    app.command("materialize")(materialize_command)


def materialize_command(
    filename: Files,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.yaml,
) -> None:
    """Print the objects that are built from TrainJobs, as one List.

    Runtimes are looked up among the given documents, then among the bundled runtimes.
    """
    with bad_input_exits():
        documents = read_manifests(filename)
    with with_upgrade_hints(documents), bad_input_exits():
        print_object({"apiVersion": "v1", "kind": "List", "items": materialize_documents(documents)}, output)


def materialize_documents(documents: list[Obj]) -> list[Obj]:
    """Return the objects of every TrainJob among the documents. Raises Invalid with the problems of all documents, or BadRequest."""
    admitted = _admit_all(documents)
    trainjobs = [document for document in admitted if document["kind"] == "TrainJob"]
    if not trainjobs:
        raise Invalid("kind: no TrainJob among the documents", problems=[Problem("kind", "no TrainJob among the documents")])
    rejections: list[Invalid] = []
    objects: list[Obj] = []
    for trainjob in trainjobs:
        try:
            objects.extend(materialize_trainjob(trainjob, admitted))
        except Invalid as error:
            rejections.append(error)
    if rejections:
        raise _combine(rejections)
    return objects


def _admit_all(documents: list[Obj]) -> list[Obj]:
    admitted: list[Obj] = []
    rejections: list[Invalid] = []
    for document in documents:
        try:
            admitted.append(admit(document).object)
        except Invalid as error:
            rejections.append(error)
    if rejections:
        raise _combine(rejections)
    return admitted


def _combine(rejections: list[Invalid]) -> Invalid:
    """Combine errors into one; a single error is returned unchanged."""
    if len(rejections) == 1:
        return rejections[0]
    problems = [problem for rejection in rejections for problem in rejection.problems or [Problem("", rejection.message)]]
    return Invalid("; ".join(rejection.message for rejection in rejections), problems=problems)


def materialize_trainjob(trainjob: Obj, documents: list[Obj]) -> list[Obj]:
    """Return the objects of one admitted TrainJob. Raises Invalid."""
    namespace = namespace_of(trainjob) or "default"
    runtimes = [d for d in documents if d["kind"] in ("TrainingRuntime", "ClusterTrainingRuntime")]

    def lookup(kind: str, name: str) -> Obj | None:
        for runtime in runtimes:
            here = kind == "ClusterTrainingRuntime" or (namespace_of(runtime) or "default") == namespace
            if here and runtime["kind"] == kind and name_of(runtime) == name:
                return runtime
        return None

    resolved = resolve_runtime(trainjob["spec"]["runtimeRef"], lookup, bundled=True, known=[name_of(r) for r in runtimes])
    return materialize(trainjob, resolved.runtime)


def print_upgrade_hints(documents: Iterable[Obj]) -> None:
    """Print, on standard error, how to migrate objects of earlier versions."""
    for document in documents:
        if is_outdated(document):
            what = f"{document['kind']} ({document['apiVersion']})"
            print(
                one_line(f"{what} is of an earlier version: `trainwright migrate` converts it to the current version"),
                file=sys.stderr,
            )


@contextmanager
def with_upgrade_hints(documents: list[Obj]) -> Iterator[None]:
    """Print the hints if the block exits the command."""
    try:
        yield
    except typer.Exit:
        print_upgrade_hints(documents)
        raise
