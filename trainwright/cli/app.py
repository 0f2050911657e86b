"""The Typer application, assembled from the modules with its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright import __version__
from trainwright.cli import (
    clean,
    controller,
    controlplane,
    crds,
    diff,
    doctor,
    jobs,
    logs,
    materialize,
    migrate,
    rbac,
    runtimes,
    submit,
    validate,
    waiting,
)
from trainwright.cli.checkpoint_commands import catalog, register, transfer
from trainwright.cli.output import print_lines
from trainwright.cli.pipeline_commands import pipelines, schedules

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print local variables, credentials among them
    help="Fine-tuning on Kubeflow Trainer v2.",
)
_MODULES = (
    controlplane,
    controller,
    doctor,
    submit,
    jobs,
    waiting,
    clean,
    diff,
    logs,
    runtimes,
    validate,
    materialize,
    migrate,
    crds,
    rbac,
    transfer,
    catalog,
    register,
    pipelines,
    schedules,
)
for module in _MODULES:
    module.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_lines(__version__)
        raise typer.Exit


@app.callback()
def trainwright(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Fine-tuning on Kubeflow Trainer v2, on a laptop or on any cluster."""
