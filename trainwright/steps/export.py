"""Exporting what a run has trained, read back and noted in the run's record."""

from __future__ import annotations

from pathlib import Path

from trainwright.checkpoints import Exported, export_run, verify_export
from trainwright.workspace import read_run, run_folder, touch_run


def export_run_checkpoint(
    workspace: Path, export_uri: str, *, run_id: str, trainjob: str = "", map_index: int = -1, resumable: bool = True
) -> Exported:
    """Export the run's newest whole checkpoint below `export_uri`, in a folder of the run's own, and verify what arrived.

    Raises NoCheckpoint, CheckpointError (also for a checkpoint that `trainjob` has not made), StorageError.
    """
    folder = run_folder(run_id, map_index)
    exported = export_run(workspace, folder, export_uri, run=run_id, trainjob=trainjob, resumable=resumable)
    verify_export(exported.uri, digest=exported.digest)
    if read_run(workspace / folder) is not None:
        touch_run(workspace, folder, exported=exported.uri)
    return exported
