"""Exports a run's checkpoint, and records the export in the run's record."""

from __future__ import annotations

from pathlib import Path

from trainwright.checkpoints import ExportOptions, ExportResult, export_run
from trainwright.workspace import read_run, run_folder, touch_run


def export_run_checkpoint(
    workspace: Path,
    export_uri: str,
    *,
    run_id: str,
    trainjob: str = "",
    map_index: int = -1,
    options: ExportOptions | None = None,
) -> ExportResult:
    """Export the run's newest complete checkpoint to the run's own folder below `export_uri`.

    Raises NoCheckpoint, CheckpointError (also if `trainjob` did not write the checkpoint), StorageError.
    """
    folder = run_folder(run_id, map_index)
    exported = export_run(workspace, folder, export_uri, run=run_id, trainjob=trainjob, options=options)
    if read_run(workspace / folder) is not None:
        touch_run(workspace, folder, exported=exported.uri)
    return exported
