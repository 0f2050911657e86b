"""Help as plain text, in sections: commands by what they are about, with whole sentences, and options by group.

Typer shows groups only with rich, which would interpret markup in texts; without it, it cuts the texts of commands off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

_WHOLE = 1000
"""Characters of the first sentence of a command's help."""


class CommandsByGroup(TyperGroup):
    """Lists its commands in the sections that `rich_help_panel` names, and says in our words what is wrong with an option."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BadParameter as error:
            from pydantic import ValidationError  # only here: it takes longer to import than help to print

            from trainwright.jobs.request.invalid_settings import words_of

            if isinstance(error.__cause__, ValidationError):  # newer versions of Typer let pydantic check the values
                error.message = words_of(error.__cause__.errors()[0])
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        _write_sections(
            formatter,
            (
                (getattr(command, "rich_help_panel", None) or "Commands", (name, command.get_short_help_str(_WHOLE)))
                for name, command in commands
                if command is not None and not command.hidden
            ),
        )


class OptionsByGroup(TyperCommand):
    """Lists its options in the sections that `rich_help_panel` names."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = ((parameter, parameter.get_help_record(ctx)) for parameter in self.get_params(ctx))
        _write_sections(
            formatter,
            ((getattr(parameter, "rich_help_panel", None) or "Options", record) for parameter, record in records if record),
        )


def _write_sections(formatter: Any, entries: Iterator[tuple[str, tuple[str, str]]]) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for title, entry in entries:
        sections.setdefault(title, []).append(entry)
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)
