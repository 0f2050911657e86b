"""Imports the module of a command when the command is asked for: importing those of all commands takes longer than most commands."""

from __future__ import annotations

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
        super().__init__({name: None for commands in sections.values() for name in commands})
        self._sections = sections

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            title, module = next((title, commands[name]) for title, commands in self._sections.items() if name in commands)
            self.data[name] = _command(module, name)
            self.data[name].rich_help_panel = title
        return self.data[name]


def group_of(sections: Sections) -> type[CommandsByGroup]:
    """Return the class of a group that has the commands of these sections."""

    class Group(CommandsByGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = CommandsOnDemand(sections)

    return Group


def _command(module: str, name: str) -> Any:
    part = typer.Typer(rich_markup_mode=None, callback=_nothing)  # with a callback, it is a group even of a single command
    importlib.import_module(module).register(part)
    return typer.main.get_group(part).commands[name]


def _nothing() -> None:
    """The callback of a group that is never called."""
