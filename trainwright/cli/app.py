"""The Typer application. The module of a command is imported when the command is asked for: all together take longer than most."""

from __future__ import annotations

import functools
import importlib
from collections import UserDict
from collections.abc import Mapping
from typing import Annotated, Any

import typer
import typer.main

from trainwright import __version__
from trainwright.cli.help_pages import CommandsByGroup
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
"""The commands in the order and the sections of the help, with the modules that register them."""


class CommandsOnDemand(UserDict[str, Any]):
    """The commands by name, in the order of the help. Each is made when it is read."""

    def __init__(self, sections: Mapping[str, Mapping[str, str]]):
        self._places = {name: (title, module) for title, commands in sections.items() for name, module in commands.items()}
        super().__init__(dict.fromkeys(self._places))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            title, module = self._places[name]
            self.data[name] = commands_of(module)[name]
            self.data[name].rich_help_panel = title
        return self.data[name]


class _Commands(CommandsByGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandsOnDemand(_SECTIONS)


@functools.cache
def commands_of(module: str) -> dict[str, Any]:
    """Return the commands that a module registers, by name."""
    part = typer.Typer(rich_markup_mode=None, callback=lambda: None)  # with a callback, it is a group even of a single command
    importlib.import_module(module).register(part)
    return dict(typer.main.get_group(part).commands)


app = typer.Typer(
    cls=_Commands,
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
