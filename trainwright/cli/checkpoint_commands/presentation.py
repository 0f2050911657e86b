"""What all commands for checkpoints share: the folders that people name, exit codes, progress and the form of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.manifest import Manifest
from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.output import ViewFormat, print_lines, print_object
from trainwright.steps.data.places import folder_uri
from trainwright.storage import BadUri, StorageError
from trainwright.storage.plain_files import ProgressCallback
from trainwright.storage.progress_log import log_progress

Output = Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")]


def summary(manifest: Manifest) -> dict[str, Any]:
    """Return what every command prints of an export."""
    return {"step": manifest.step, "files": len(manifest.files), "bytes": manifest.size, "digest": manifest.digest}


def show(facts: dict[str, Any], output: ViewFormat) -> None:
    """Print facts, one for each line, or as an object."""
    if output is not ViewFormat.table:
        print_object(facts, output)
        return
    width = max(9, *map(len, facts))
    for name, value in facts.items():
        print_lines(f"{name:<{width}} {value}")


@contextmanager
def errors_exit() -> Iterator[None]:
    """End the program with one line for an error of checkpoints or stores."""
    try:
        yield
    except BadUri as error:
        fail(str(error), BAD_INPUT)
    except (CheckpointError, StorageError, FileExistsError) as error:
        fail(str(error))


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int], ProgressCallback]]:
    """Show a progress bar of bytes, with rate and remaining time, on stderr if that is a terminal; else a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield log_progress(what, write=lambda line: print_lines(line, error=True))
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:

        def start_progress(total: int) -> ProgressCallback:
            task = bar.add_task(what, total=total)
            return lambda count: bar.advance(task, count)

        yield start_progress


def path_as_uri(text: str) -> str:
    """Callback of an argument: return the URI of a folder that may be written as a path of this machine."""
    try:
        return folder_uri(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
