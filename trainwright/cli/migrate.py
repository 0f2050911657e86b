"""`trainwright migrate`: manifests of earlier training kinds as TrainJobs of today, with a note on what was not kept."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
import yaml

from trainwright.api import admit
from trainwright.api.objects import Obj
from trainwright.cli.errors import bad_input_exits, one_line
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format
from trainwright.materialize import materialize
from trainwright.migration import MigrationResult, Note, migrate

Files = Annotated[list[str], typer.Option("-f", "--filename", help="A manifest; may be given again. '-' is standard input.")]


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate_command)


def migrate_command(
    filename: Files,
    output: Annotated[Format, typer.Option("-o", "--output", help="Form of the output.")] = Format.yaml,
) -> None:
    """Turn PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob and early TrainJobs into TrainJobs.

    The objects go to standard output, ready for `kubectl apply -f -`; notes on fields that were not kept to standard error.
    """
    with bad_input_exits():
        made = [migrate(document) for document in read_manifests(filename)]
        _check_together([obj for migrated in made for obj in migrated.objects])
    if output is Format.json:
        objects = [obj for migrated in made for obj in migrated.objects]
        notes = [{"path": note.path, "text": note.text} for migrated in made for note in migrated.notes]
        print(json.dumps({"objects": objects, "notes": notes}, indent=2, ensure_ascii=False))
        return
    for migrated in made:
        _print(migrated)


def _print(migrated: MigrationResult) -> None:
    for obj in migrated.objects:
        sys.stdout.write("---\n" + yaml.dump(obj, Dumper=_NoAliases, sort_keys=False, allow_unicode=True, width=10**9))
    for note in migrated.notes:
        print(_line(migrated.objects[-1], note), file=sys.stderr)


def _check_together(objects: list[Obj]) -> None:
    """TrainJobs whose runtimes are among the files are materialized too. Raises Invalid with what the two do not agree on."""
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


class _NoAliases(yaml.SafeDumper):
    """People edit the output: what occurs twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True
