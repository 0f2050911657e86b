"""What mends a manifest of an earlier version: said beside the problems that it has today."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import typer

from trainwright.api.objects import Obj
from trainwright.cli.errors import one_line
from trainwright.migration import is_outdated


def advise(documents: Iterable[Obj]) -> None:
    """Name, on standard error, the command that brings those objects up to date that are of an earlier version."""
    for document in documents:
        if is_outdated(document):
            what = f"{document['kind']} ({document['apiVersion']})"
            print(one_line(f"{what} is of an earlier version: `trainwright migrate` turns it into today's form"), file=sys.stderr)


@contextmanager
def advised(documents: list[Obj]) -> Iterator[None]:
    """Advise where the block ends the command."""
    try:
        yield
    except typer.Exit:
        advise(documents)
        raise
