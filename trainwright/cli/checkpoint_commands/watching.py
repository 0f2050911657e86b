"""`trainwright export --watch`: exports while training runs, until a signal or the stop file says that it has ended."""

from __future__ import annotations

import signal
import threading
import types
from pathlib import Path

from trainwright.checkpoints.prune import Retention
from trainwright.checkpoints.publish import ExportOptions, ExportResult
from trainwright.checkpoints.watch import Watch
from trainwright.cli.errors import fail
from trainwright.cli.output import print_lines

_LOOK_SECONDS = 1.0


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
