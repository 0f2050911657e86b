"""Output as JSON, YAML or tables."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from trainwright.api.yaml_writer import to_yaml

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
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(to_yaml(value))


def print_objects(items: list[Any], form: Format | ViewFormat) -> None:
    """Print one object, or several as one List: the output is always one document."""
    print_object(items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}, form)


def print_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table; cells are not truncated if the output is not a terminal."""
    console = Console(markup=False)
    if not console.is_terminal:
        console = Console(markup=False, width=_NO_LIMIT, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
