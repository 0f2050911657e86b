"""`trainwright migrate`: converts manifests of earlier training kinds to TrainJobs, with notes on fields that were not kept."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from trainwright.api import admit
from trainwright.api.objects import Obj
from trainwright.api.one_line import one_line
from trainwright.api.yaml_writer import to_yaml
from trainwright.cli.errors import bad_input_exits
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format
from trainwright.materialize import materialize
from trainwright.migration import MigrationResult, Note, migrate

Files = Annotated[list[str], typer.Option("-f", "--filename", help="Manifest file; repeatable. '-' is standard input.")]


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate_command)


def migrate_command(
    filename: Files,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.yaml,
) -> None:
    """Convert PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob and early TrainJobs to TrainJobs.

    Objects are printed on standard output, ready for `kubectl apply -f -`; notes on fields that were not kept on standard error.
    """
    with bad_input_exits():
        results = [migrate(document) for document in read_manifests(filename)]
        _check_with_runtimes([obj for result in results for obj in result.objects])
    if output is Format.json:
        objects = [obj for result in results for obj in result.objects]
        notes = [{"path": note.path, "text": note.text} for result in results for note in result.notes]
        print(json.dumps({"objects": objects, "notes": notes}, indent=2, ensure_ascii=False))
        return
    for result in results:
        _print(result)


def _print(result: MigrationResult) -> None:
    for obj in result.objects:
        sys.stdout.write("---\n" + to_yaml(obj))
    for note in result.notes:
        print(_line(result.objects[-1], note), file=sys.stderr)


def _check_with_runtimes(objects: list[Obj]) -> None:
    """Materialize TrainJobs whose runtimes are among the files. Raises Invalid if the two are incompatible."""
    runtimes = {(obj["kind"], _name_of(obj)): obj for obj in objects if obj["kind"].endswith("TrainingRuntime")}
    for trainjob in objects:
        reference = (trainjob.get("spec") or {}).get("runtimeRef") or {} if trainjob["kind"] == "TrainJob" else {}
        runtime = runtimes.get((reference.get("kind", "ClusterTrainingRuntime"), str(reference.get("name"))))
        if runtime is not None and (trainjob.get("metadata") or {}).get("name"):
            materialize(admit(trainjob).object, admit(runtime).object)


def _line(obj: Obj, note: Note) -> str:
    return one_line(f"{_name_of(obj)}: {note}")


def _name_of(obj: Obj) -> str:
    metadata = obj.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or obj["kind"])
