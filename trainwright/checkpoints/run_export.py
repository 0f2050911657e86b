"""Exporting what a run has trained: the newest whole checkpoint of its folder in a workspace, to a folder of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.export import Exported, export_checkpoint
from trainwright.checkpoints.find import find_checkpoints
from trainwright.checkpoints.job_record import recorded_writers
from trainwright.storage.digests import Advance, silent
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.layout import OUTPUT, run_name, run_path

log = logging.getLogger(__name__)


def export_run(
    workspace: Path,
    run_folder: str,
    export_uri: str,
    *,
    run: str,
    trainjob: str = "",
    resumable: bool = True,
    metadata: dict[str, object] | None = None,
    announce: Callable[[int], Advance] = lambda _total: silent,
) -> Exported:
    """Export the newest whole checkpoint of the run to `export_uri/NAME/checkpoint-N`; `latest.json` lies beside it.

    `run_folder` is `runs/NAME` in `workspace`. With `trainjob` the output must be one that this job has written into.
    Where the run has no folder, `WORKSPACE/output` is exported, which an earlier version wrote. The rest is as in
    `export_checkpoint`. Raises NoCheckpoint, CheckpointError (also for a folder that is none of a run's), StorageError.
    """
    output = _output(workspace, run_folder)
    _check_written_by(output, trainjob)
    target = StorageUri.parse(export_uri).join(run_name(run_folder))
    return export_checkpoint(
        output, str(target), source=f"{run}/{trainjob}", resumable=resumable, metadata=metadata, announce=announce
    )


def _output(workspace: Path, run_folder: str) -> Path:
    try:
        folder = run_path(workspace, run_folder)
    except WorkspaceError as error:
        raise CheckpointError(str(error)) from error
    output, earlier = folder / OUTPUT, workspace / OUTPUT
    with disk_errors(folder):
        if output.is_symlink():
            raise CheckpointError(f"{output} is a link; checkpoints are only exported from the run's own folder: remove the link")
        exists, there = folder.is_dir(), earlier.is_dir()
    if not exists and there:
        log.warning("the run has no folder folder=%s; exporting what an earlier version wrote output=%s", folder, earlier)
        return earlier
    if there and not find_checkpoints(output) and find_checkpoints(earlier):
        log.warning("checkpoints of an earlier version are neither resumed from nor exported output=%s", earlier)
    return output


def _check_written_by(output: Path, trainjob: str) -> None:
    writers = recorded_writers(output) if trainjob else None
    if writers is not None and trainjob not in [writer.name for writer in writers]:
        others = ", ".join(dict.fromkeys(writer.name for writer in writers)) or "none"
        raise CheckpointError(
            f"{output} holds no checkpoints of the TrainJob {trainjob}; it was written by: {others}. "
            "Export with the name of one of these jobs, or without a name"
        )
