"""`trainwright migrate`: converts manifests of earlier training kinds to TrainJobs, with notes on fields that were not kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from trainwright.api.admission.admit import admit
from trainwright.api.errors import BadRequest, Invalid
from trainwright.api.generated_names import with_sample_name
from trainwright.api.objects import Obj
from trainwright.cli.errors import WarningPrinter, bad_input_exits
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format, json_text
from trainwright.jobs.credentials.secret_detection import manifest_problems
from trainwright.materialize import materialize
from trainwright.migration import MigrationResult, migrate_all
from trainwright.text.foreign_texts import one_line
from trainwright.text.yaml_writer import to_yaml

Files = Annotated[
    list[str], typer.Option("-f", "--filename", metavar="FILE", help="Manifest file, - for standard input; repeatable.")
]


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate_command)


def migrate_command(
    filename: Files,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.yaml,
) -> None:
    """Convert PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob and early TrainJobs to TrainJobs.

    Other objects of the files (claims, ConfigMaps, Services) are printed unchanged, with a note.
    Objects are printed on standard output, ready for `kubectl apply -f -`; notes on fields that were not kept on standard error.
    """
    with bad_input_exits():
        documents = read_manifests(filename)
        for document in documents:
            for field in ("metadata", "spec"):
                if not isinstance(document.get(field) or {}, dict):
                    raise BadRequest(f"{document.get('kind')}: {field}: must be an object")
        results = migrate_all(documents)
        _check(results)
    warnings = WarningPrinter()
    for obj in (obj for result in results for obj in result.objects):
        for problem in manifest_problems(obj):
            warnings.of(obj)(str(problem))
    if output is Format.json:
        objects = [obj for result in results for obj in result.objects]
        notes = [{"path": note.path, "text": note.text} for result in results for note in result.notes]
        sys.stdout.write(json_text({"objects": objects, "notes": notes}))
        return
    for result in results:
        _print(result)


def _print(result: MigrationResult) -> None:
    for obj in result.objects:
        sys.stdout.write("---\n" + to_yaml(obj))
    for note in result.notes:
        print(one_line(f"{_name_of(result.objects[-1])}: {note}"), file=sys.stderr)


def _check(results: list[MigrationResult]) -> None:
    """Materialize TrainJobs whose runtimes are among the files. Raises Invalid, with paths of the old manifest where known."""
    objects = [obj for result in results for obj in result.objects]
    runtimes = {(obj["kind"], _name_of(obj)): obj for obj in objects if obj["kind"].endswith("TrainingRuntime")}
    for result in results:
        for trainjob in result.objects:
            reference = (trainjob.get("spec") or {}).get("runtimeRef") if trainjob["kind"] == "TrainJob" else None
            if not isinstance(reference, dict):
                continue
            runtime = runtimes.get((str(reference.get("kind", "ClusterTrainingRuntime")), str(reference.get("name"))))
            if runtime is not None:
                with _old_paths(result):
                    materialize(with_sample_name(admit(trainjob).object), admit(runtime).object)


@contextmanager
def _old_paths(result: MigrationResult) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        error.problems = [replace(problem, field=result.old_path(problem.field)) for problem in error.problems]
        raise


def _name_of(obj: Obj) -> str:
    metadata = obj.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or obj["kind"])
