"""Output as JSON, YAML or tables."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from trainwright.api.finite_json import finite_json
from trainwright.text.foreign_texts import json_printable, one_line, printable, with_colours_only
from trainwright.text.yaml_writer import to_yaml

_NO_LIMIT = 10_000


class Format(enum.StrEnum):
    json = "json"
    yaml = "yaml"


class ViewFormat(enum.StrEnum):
    """As `Format`, with a table for people, which is the default of commands that show objects."""

    table = "table"
    json = "json"
    yaml = "yaml"


def print_object(value: Any, form: Format | ViewFormat) -> None:
    """Print JSON-shaped data on standard output, without line wrapping."""
    if form.value == "json":
        sys.stdout.write(json_text(value))
    else:
        sys.stdout.write(to_yaml(value))


def json_text(value: Any) -> str:
    """Return indented JSON that is safe to print and to read: control characters are escapes, and null stands for NaN."""
    try:
        text = _dumped(value)
        text.encode()
    except ValueError:
        text = _dumped(finite_json(value).value)
    return json_printable(text) + "\n"


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def print_lines(text: object, *, error: bool = False) -> None:
    """Print text that others may have written, with control characters as escapes."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def is_terminal() -> bool:
    """Whether a person reads standard output, so that control sequences of a log are dropped."""
    return sys.stdout.isatty()


def log_text(text: str) -> str:
    """Return a line of a log as it is printed: unchanged, as by kubectl, except that a terminal gets colours only."""
    return with_colours_only(text) if is_terminal() else text


def print_objects(items: list[Any], form: Format | ViewFormat) -> None:
    """Print one object, or several as one List: the output is always one document."""
    print_object(items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}, form)


def print_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, empty: str = "") -> None:
    """Print a table; cells are not truncated if the output is not a terminal. The text `empty` takes its place if it has no rows."""
    rows = list(rows)
    if empty and not rows:
        print_lines(empty, error=True)
        return
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, emoji=False, highlight=False, width=_NO_LIMIT, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(one_line(column), no_wrap=True)
    for row in rows:
        table.add_row(*map(one_line, row))
    console.print(table)
