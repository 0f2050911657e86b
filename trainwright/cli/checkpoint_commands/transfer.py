"""`trainwright export`, `verify` and `restore`: copy checkpoints to a store and back.

`export --watch` exports while training runs, until a signal or the stop file says that it has ended.
"""

from __future__ import annotations

import signal
import threading
import types
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trainwright.checkpoints.export_run import exports_of_run, run_of_output
from trainwright.checkpoints.find import Which
from trainwright.checkpoints.origin import adapter_base, base_advice
from trainwright.checkpoints.pointers import Metric
from trainwright.checkpoints.prune import Retention
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.checkpoints.watch import Watch
from trainwright.cli.checkpoint_commands.presentation import Output, byte_progress, errors_exit, path_as_uri, show, summary
from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.output import ViewFormat, print_lines
from trainwright.cli.waiting import finite_seconds
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri

_LOOK_SECONDS = 1.0


class Selection(StrEnum):
    auto = "auto"
    last = "last"
    best = "best"


_WHICH: dict[Selection, Which] = {Selection.auto: "", Selection.last: "last", Selection.best: "best"}


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("verify")(verify)
    app.command("restore")(restore)


def export(
    folder: Annotated[Path, typer.Argument(help="Training output folder that contains checkpoint-N folders.")],
    target: Annotated[
        str, typer.Argument(help="Path or s3://bucket/prefix; the run gets its own folder below it.", callback=path_as_uri)
    ],
    run: Annotated[str, typer.Option(help="Id of the run; default: the name of its folder, or of the job that trained.")] = "",
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint; default: see --which.")] = None,
    which: Annotated[
        Selection, typer.Option(help="The last complete checkpoint, or the best one by the training's metric; auto: as it ended.")
    ] = Selection.auto,
    source: Annotated[str, typer.Option(help="Recorded in the manifest.")] = "",
    weights_only: Annotated[bool, typer.Option("--weights-only", help="Do not export optimizer and random states.")] = False,
    supersede: Annotated[
        bool, typer.Option("--supersede", help="Publish also if the run has another export of this step.")
    ] = False,
    best_metric: Annotated[str, typer.Option(help="Logged metric that chooses the run's best export.")] = "eval_loss",
    greater_is_better: Annotated[bool, typer.Option("--greater-is-better", help="Whether a greater metric is better.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Export every checkpoint while training runs, until a signal.")] = False,
    keep_last: Annotated[int, typer.Option(min=0, help="With --watch: delete older exports; 0 keeps all.")] = 0,
    poll_interval: Annotated[
        float, typer.Option(min=0.1, help="With --watch: seconds between looks at the folder.", callback=finite_seconds)
    ] = 10.0,
    stop_file: Annotated[Path | None, typer.Option(help="With --watch: end when this file exists.")] = None,
    output: Output = ViewFormat.table,
) -> None:
    """Export a checkpoint with a manifest, which is written when every stored byte is confirmed; an existing export is checked."""
    if which is not Selection.auto and (watch or step is not None):
        fail("--which selects one checkpoint: leave out --watch, which exports all, and --step", BAD_INPUT)
    metric = Metric(best_metric, greater_is_better)
    options = ExportOptions(resumable=not weights_only, which=_WHICH[which], supersede=supersede, metric=metric)
    with errors_exit():
        exports, source = exports_of_run(target, run or run_of_output(folder)), source or str(folder.absolute())
        if watch:
            return watch_and_export(
                folder,
                exports,
                source=source,
                options=options,
                keep_last=keep_last,
                poll_seconds=poll_interval,
                stop_file=stop_file,
            )
    with errors_exit(), byte_progress("exporting") as start_progress:
        exported = export_checkpoint(
            folder,
            exports,
            source=source,
            step=step,
            options=options,
            start_progress=start_progress,
        )
    store = {"conditional_writes": exported.capabilities.conditional_writes, "confirmed": exported.manifest.confirmed}
    show({"uri": exported.uri, "existed": exported.existed, **summary(exported.manifest), **store}, output)


def verify(
    uri: Annotated[str, typer.Argument(help="An exported checkpoint.", callback=path_as_uri)],
    digest: Annotated[str, typer.Option(help="Expected digest of the manifest.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Compare only sizes, and checksums that the store reports.")] = False,
    output: Output = ViewFormat.table,
) -> None:
    """Read every file of an export and compare it with the manifest. Exit code 1 if anything differs."""
    with errors_exit(), byte_progress("verifying") as start_progress:
        manifest = verify_export(uri, digest=digest, quick=quick, start_progress=start_progress)
    # A file may have other contents of the same size, and a store such as file:// reports no checksum.
    verified = "sizes, and checksums that the store reports" if quick else True
    show({"uri": uri, "verified": verified, **summary(manifest)}, output)


def restore(
    uri: Annotated[str, typer.Argument(help="An exported checkpoint.", callback=path_as_uri)],
    target: Annotated[str, typer.Argument(help="A folder that does not exist yet.")],
    digest: Annotated[str, typer.Option(help="Expected digest of the manifest.")] = "",
    output: Output = ViewFormat.table,
) -> None:
    """Copy an export to a local folder and verify every file. Says how to load an adapter whose base model has to be fetched first."""
    with errors_exit(), byte_progress("restoring") as start_progress:
        folder = _local_folder(target)
        manifest = restore_checkpoint(uri, folder, digest=digest, start_progress=start_progress)
    base = adapter_base(folder)
    show({"folder": str(folder.absolute()), **summary(manifest), **({"base_model": base} if base else {})}, output)
    if advice := base_advice(base, folder):
        print_lines(advice, error=True)


def _local_folder(text: str) -> Path:
    """Return a folder of this machine, written as a path or as `file://`. Raises BadUri for another URI."""
    if "://" not in text:
        return Path(text)
    uri = StorageUri.parse(text)
    if uri.scheme != "file":  # as a path, it would be a folder named `s3:`
        raise BadUri(f"{uri}: expected a folder of this machine")
    return uri.path


def watch_and_export(
    folder: Path,
    target: str,
    *,
    source: str,
    options: ExportOptions,
    keep_last: int,
    poll_seconds: float,
    stop_file: Path | None,
) -> None:
    """Export until SIGTERM, SIGINT, or until `stop_file` exists. Prints a line for each export.

    Ends with exit code 1 if the last checkpoint could not be exported.
    """
    stop = threading.Event()

    def end(_number: int, _frame: types.FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    retention = Retention(keep_last=keep_last) if keep_last else None
    watch = Watch(folder, target, source, stop, options, retention, poll_seconds, on_export=_print)
    thread = threading.Thread(target=watch.run, name="watch")
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
        if stop_file is not None and stop_file.exists():
            stop.set()
    if watch.failure:
        fail(watch.failure)


def _print(exported: ExportResult) -> None:
    what = "exists" if exported.existed else "exported"
    print_lines(f"{what} {exported.uri} step={exported.manifest.step} digest={exported.digest}")
