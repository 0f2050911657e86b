"""The Typer application, and the modules of its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from trainwright import __version__
from trainwright.cli.commands_on_demand import group_of
from trainwright.cli.output import print_lines

_CLI = "trainwright.cli"
_CHECKPOINTS, _PIPELINES = f"{_CLI}.checkpoint_commands", f"{_CLI}.pipeline_commands"
_SECTIONS = {
    "The embedded cluster": {
        **dict.fromkeys(("up", "down", "status", "backup"), f"{_CLI}.controlplane"),
        "environments": f"{_CLI}.environments",
        "ui": f"{_CLI}.ui",
    },
    "Jobs": {
        "finetune": f"{_CLI}.finetune",
        "submit": f"{_CLI}.submit",
        **dict.fromkeys(("get", "describe", "cancel", "delete"), f"{_CLI}.jobs"),
        "wait": f"{_CLI}.waiting",
        "clean": f"{_CLI}.clean",
        "diff": f"{_CLI}.diff",
        "logs": f"{_CLI}.logs",
    },
    "Manifests": {name: f"{_CLI}.{name}" for name in ("validate", "materialize", "migrate")},
    "Checkpoints and exports": {
        **dict.fromkeys(("export", "verify", "restore"), f"{_CHECKPOINTS}.transfer"),
        "checkpoints": f"{_CHECKPOINTS}.catalog",
        "register": f"{_CHECKPOINTS}.register",
    },
    "Setting up a cluster": {name: f"{_CLI}.{name}" for name in ("doctor", "guard", "controller", "runtimes", "crds", "rbac")},
    "Pipelines": {"pipeline": f"{_PIPELINES}.pipelines", "schedule": f"{_PIPELINES}.schedules"},
}
"""The commands in the order of the help, with the modules that register them."""
app = typer.Typer(
    cls=group_of(_SECTIONS),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print local variables, credentials among them
    help="Fine-tuning on Kubeflow Trainer v2.",
)


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
