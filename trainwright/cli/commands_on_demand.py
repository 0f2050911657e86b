"""Imports the module of a command when the command is asked for: importing those of all commands takes longer than most commands."""

from __future__ import annotations

import functools
import importlib
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import typer
import typer.main

from trainwright.cli.help_pages import CommandsByGroup

Sections = Mapping[str, Mapping[str, str]]
"""The names of commands with the modules that register them, by the titles of the sections that the help shows them in."""


class CommandsOnDemand(UserDict[str, Any]):
    """The commands by name, in the order of the help. Each is made when it is read."""

    def __init__(self, sections: Sections):
        self._places = {name: (title, module) for title, commands in sections.items() for name, module in commands.items()}
        super().__init__(dict.fromkeys(self._places))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            title, module = self._places[name]
            self.data[name] = commands_of(module)[name]
            self.data[name].rich_help_panel = title
        return self.data[name]


def group_of(sections: Sections) -> type[CommandsByGroup]:
    """Return the class of a group that has the commands of these sections."""

    class Group(CommandsByGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = CommandsOnDemand(sections)

    return Group


@functools.cache
def commands_of(module: str) -> dict[str, Any]:
    """Return the commands that a module registers, by name."""
    part = typer.Typer(rich_markup_mode=None, callback=_nothing)  # with a callback, it is a group even of a single command
    importlib.import_module(module).register(part)
    return dict(typer.main.get_group(part).commands)


def _nothing() -> None:
    """The callback of a group that is never called."""
