"""`trainwright pipeline`: lists, compiles and runs pipelines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.cli.errors import BAD_INPUT, FAILURE, fail
from trainwright.cli.help_pages import CommandsByGroup
from trainwright.cli.output import ViewFormat, print_lines, print_object, print_table
from trainwright.cli.pipeline_commands import run
from trainwright.cli.pipeline_commands.options import (
    PIPELINE_HELP,
    Image,
    Parallelism,
    interrupt_exits,
    pipeline_errors_exit,
    print_warnings,
)
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.parameters import ParameterSpec
from trainwright.pipeline_runs.source import CompileSettings, ListedPipelines, compile_pipeline, shipped_pipelines

_MAX_CELL = 60
_group = typer.Typer(cls=CommandsByGroup, no_args_is_help=True, help="List, compile and run pipelines of Kubeflow Pipelines.")


def register(app: typer.Typer) -> None:
    app.add_typer(_group, name="pipeline")


_group.command("run")(run.run_pipeline)


@_group.command("list")
def list_pipelines(
    pipeline: Annotated[
        str,
        typer.Argument(help=f"{PIPELINE_HELP} Default: all shipped ones, with the beginnings of long texts.", show_default=False),
    ] = "",
    output: Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")] = ViewFormat.table,
) -> None:
    """List the shipped pipelines, or show one pipeline, with their parameters."""
    with pipeline_errors_exit(), interrupt_exits():
        listed = ListedPipelines({pipeline: compile_pipeline(pipeline)}) if pipeline else shipped_pipelines()
    if output is ViewFormat.table:
        short = str if pipeline else _short
        rows = [
            (
                name,
                spec.name,
                spec.type,
                "(required)" if spec.is_required else short(json.dumps(spec.default, ensure_ascii=False)),
                short(spec.description),
            )
            for name, pipeline in listed.compiled.items()
            for spec in _ordered(pipeline)
        ]
        print_table(("PIPELINE", "PARAMETER", "TYPE", "DEFAULT", "DESCRIPTION"), rows)
    else:
        print_object([_facts(name, pipeline) for name, pipeline in listed.compiled.items()], output)
    for problem in listed.failed.values():
        print_lines(" ".join(problem.split()), error=True)
    if listed.failed:
        raise typer.Exit(FAILURE)


@_group.command("compile")
def compile_command(
    pipeline: Annotated[str, typer.Argument(help=PIPELINE_HELP)],
    to: Annotated[str, typer.Option("-O", "--to", help="File for the YAML. Default: standard output.")] = "",
    image: Image = "",
    parallelism: Parallelism = None,
) -> None:
    """Compile a pipeline to YAML, for the interface of Kubeflow Pipelines or any client of it."""
    with pipeline_errors_exit(), interrupt_exits():
        compiled = compile_pipeline(pipeline, CompileSettings(image, parallelism))
    print_warnings(compiled)
    if not to:
        sys.stdout.write(compiled.text)
        return
    try:
        Path(to).write_text(compiled.text, "utf-8")
    except OSError as error:
        fail(f"{to}: {error.strerror or error}", BAD_INPUT)
    except ValueError:  # a null character
        fail(f"{to!r}: not a file name", BAD_INPUT)
    print_lines(f"{compiled.name} compiled to {to} (sha256:{compiled.digest})")


def _facts(name: str, pipeline: CompiledPipeline) -> dict[str, Any]:
    parameters = [{**asdict(spec), "choices": list(spec.choices)} for spec in _ordered(pipeline)]
    return {"name": name, "description": pipeline.description, "parameters": parameters}


def _ordered(pipeline: CompiledPipeline) -> list[ParameterSpec]:
    """Return the parameters, required ones first."""
    return sorted(pipeline.parameters.values(), key=lambda spec: (not spec.is_required, spec.name))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3]}..."
