"""The Typer application, assembled from the modules with its commands."""

from __future__ import annotations

from types import ModuleType
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
    environments,
    finetune,
    jobs,
    logs,
    materialize,
    migrate,
    rbac,
    runtimes,
    submit,
    ui,
    validate,
    waiting,
)
from trainwright.cli.checkpoint_commands import catalog, register, transfer
from trainwright.cli.help_pages import CommandsByGroup
from trainwright.cli.output import print_lines
from trainwright.cli.pipeline_commands import pipelines, schedules

app = typer.Typer(
    cls=CommandsByGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print local variables, credentials among them
    help="Fine-tuning on Kubeflow Trainer v2.",
)
_GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "The embedded cluster": (controlplane, environments, ui),
    "Jobs": (finetune, submit, jobs, waiting, clean, diff, logs),
    "Manifests": (validate, materialize, migrate),
    "Checkpoints and exports": (transfer, catalog, register),
    "Setting up a cluster": (doctor, controller, runtimes, crds, rbac),
    "Pipelines": (pipelines, schedules),
}
"""The modules with the commands of each section of the help."""


def _register_commands() -> None:
    for title, modules in _GROUPS.items():
        known = len(app.registered_commands), len(app.registered_groups)
        for module in modules:
            module.register(app)
        for command in app.registered_commands[known[0] :]:
            command.rich_help_panel = title
        for group in app.registered_groups[known[1] :]:
            group.rich_help_panel = title


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


_register_commands()
