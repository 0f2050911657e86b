"""Suggests `trainwright migrate` for manifests of earlier versions, after their problems."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import typer

from trainwright.api.objects import Obj
from trainwright.migration import is_outdated
from trainwright.text.foreign_texts import one_line


def print_upgrade_hints(documents: Iterable[Obj]) -> None:
    """Print, on standard error, how to migrate objects of earlier versions."""
    for document in documents:
        if is_outdated(document):
            what = f"{document['kind']} ({document['apiVersion']})"
            print(
                one_line(f"{what} is of an earlier version: `trainwright migrate` converts it to the current version"),
                file=sys.stderr,
            )


@contextmanager
def with_upgrade_hints(documents: list[Obj]) -> Iterator[None]:
    """Print the hints if the block exits the command."""
    try:
        yield
    except typer.Exit:
        print_upgrade_hints(documents)
        raise
