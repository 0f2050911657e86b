"""`trainwright materialize`: what a TrainJob would become, printed, without any cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright.api import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cli.errors import bad_input_exits
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format, print_object
from trainwright.cli.upgrade_hints import advised
from trainwright.materialize import materialize
from trainwright.runtimes import resolve_runtime

Files = Annotated[list[str], typer.Option("-f", "--filename", help="A manifest; may be given again. '-' is standard input.")]


def register(app: typer.Typer) -> None:
    app.command("materialize")(materialize_command)


def materialize_command(
    filename: Files,
    output: Annotated[Format, typer.Option("-o", "--output", help="Form of the output.")] = Format.yaml,
) -> None:
    """Print the objects that TrainJobs become, as one List.

    Runtimes are looked for among the given documents, then in the bundled catalogue.
    """
    with bad_input_exits():
        documents = read_manifests(filename)
    with advised(documents), bad_input_exits():
        print_object({"apiVersion": "v1", "kind": "List", "items": materialized(documents)}, output)


def materialized(documents: list[Obj]) -> list[Obj]:
    """The objects of every TrainJob among the documents. Raises Invalid, with the problems of all documents, or BadRequest."""
    admitted = _all_admitted(documents)
    trainjobs = [document for document in admitted if document["kind"] == "TrainJob"]
    if not trainjobs:
        raise Invalid("kind: no TrainJob among the documents", problems=[Problem("kind", "no TrainJob among the documents")])
    refusals: list[Invalid] = []
    objects: list[Obj] = []
    for trainjob in trainjobs:
        try:
            objects.extend(materialized_one(trainjob, admitted))
        except Invalid as error:
            refusals.append(error)
    if refusals:
        raise _together(refusals)
    return objects


def _all_admitted(documents: list[Obj]) -> list[Obj]:
    admitted: list[Obj] = []
    refusals: list[Invalid] = []
    for document in documents:
        try:
            admitted.append(admit(document).object)
        except Invalid as error:
            refusals.append(error)
    if refusals:
        raise _together(refusals)
    return admitted


def _together(refusals: list[Invalid]) -> Invalid:
    """One error for all; of a single one nothing is lost."""
    if len(refusals) == 1:
        return refusals[0]
    problems = [problem for refusal in refusals for problem in refusal.problems or [Problem("", refusal.message)]]
    return Invalid("; ".join(refusal.message for refusal in refusals), problems=problems)


def materialized_one(trainjob: Obj, documents: list[Obj]) -> list[Obj]:
    """The objects of one admitted TrainJob. Raises Invalid."""
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
