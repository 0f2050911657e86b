"""`trainwright export`, `verify` and `restore`: copy checkpoints to a store and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from trainwright.checkpoints import CheckpointError, Manifest, export_checkpoint, restore_checkpoint, verify_export
from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.output import ViewFormat, print_lines, print_object
from trainwright.storage import BadUri, StorageError
from trainwright.storage.digests import ProgressCallback

Output = Annotated[ViewFormat, typer.Option("-o", "--output")]


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("verify")(verify)
    app.command("restore")(restore)


def export(
    folder: Annotated[Path, typer.Argument(help="Training output folder that contains checkpoint-N folders.")],
    target: Annotated[str, typer.Argument(help="file:///path; the checkpoint gets its own folder below it.")],
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint; default: the newest complete one.")] = None,
    source: Annotated[str, typer.Option(help="Recorded in the manifest.")] = "",
    weights_only: Annotated[bool, typer.Option("--weights-only", help="Do not export optimizer and random states.")] = False,
    output: Output = ViewFormat.table,
) -> None:
    """Export a checkpoint with a manifest; an existing export is verified."""
    with _errors_exit(), _byte_progress("exporting") as start_progress:
        exported = export_checkpoint(
            folder,
            target,
            source=source or str(folder.absolute()),
            step=step,
            resumable=not weights_only,
            start_progress=start_progress,
        )
    _show({"uri": exported.uri, "existed": exported.existed, **_summary(exported.manifest)}, output)


def verify(
    uri: Annotated[str, typer.Argument(help="An exported checkpoint.")],
    digest: Annotated[str, typer.Option(help="Expected digest of the manifest.")] = "",
    output: Output = ViewFormat.table,
) -> None:
    """Read every file of an export and compare it with the manifest. Exit code 1 if anything differs."""
    with _errors_exit(), _byte_progress("verifying") as start_progress:
        manifest = verify_export(uri, digest=digest, start_progress=start_progress)
    _show({"uri": uri, "verified": True, **_summary(manifest)}, output)


def restore(
    uri: Annotated[str, typer.Argument(help="An exported checkpoint.")],
    target: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    digest: Annotated[str, typer.Option(help="Expected digest of the manifest.")] = "",
    output: Output = ViewFormat.table,
) -> None:
    """Copy an export to a local folder and verify every file."""
    with _errors_exit(), _byte_progress("restoring") as start_progress:
        manifest = restore_checkpoint(uri, target, digest=digest, start_progress=start_progress)
    _show({"folder": str(target.absolute()), **_summary(manifest)}, output)


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {"step": manifest.step, "files": len(manifest.files), "bytes": manifest.size, "digest": manifest.digest}


def _show(summary: dict[str, Any], output: ViewFormat) -> None:
    if output is not ViewFormat.table:
        print_object(summary, output)
        return
    for name, value in summary.items():
        print_lines(f"{name:<9} {value}")


@contextmanager
def _errors_exit() -> Iterator[None]:
    try:
        yield
    except BadUri as error:
        fail(str(error), BAD_INPUT)
    except (CheckpointError, StorageError, FileExistsError) as error:
        fail(str(error))


@contextmanager
def _byte_progress(what: str) -> Iterator[Callable[[int], ProgressCallback]]:
    """Show a progress bar of bytes on stderr, if it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def start_progress(total: int) -> ProgressCallback:
            task = bar.add_task(what, total=total)
            return lambda count: bar.advance(task, count)

        yield start_progress
