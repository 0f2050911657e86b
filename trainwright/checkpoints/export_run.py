"""Exports a complete checkpoint of a run's workspace folder to the run's export folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.exported import read_export
from trainwright.checkpoints.job_record import JOBS, recorded_writers
from trainwright.checkpoints.manifest import OWNER
from trainwright.checkpoints.pointers import latest_export
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.jobs.state.run_folder import AGAIN, export_name, step_attempt, step_digest, step_folder
from trainwright.storage.open import open_store
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.workspace.layout import OUTPUT, RUNS, WorkspaceError, run_name, step_path
from trainwright.workspace.layout import run_folder as run_folder_name

log = logging.getLogger(__name__)


def export_run(
    workspace: Path,
    run_folder: str,
    export_uri: str,
    *,
    run: str,
    trainjob: str = "",
    is_exact: bool = False,
    owner: str = "",
    options: ExportOptions | None = None,
    metadata: dict[str, object] | None = None,
    start_progress: Callable[[int], ProgressCallback] = lambda _total: no_progress,
) -> ExportResult:
    """Export a checkpoint of the run, see `select_checkpoint`, to `export_uri/NAME/checkpoint-N`, with `latest.json` beside it.

    `run_folder` is `runs/NAME` in `workspace`, or the folder of one of the run's trainings in it; unless it `is_exact`, the one that
    `trainjob` has written to is looked for, see `trained_folder`. With `trainjob`, that job must have written to the output. `owner`
    is who runs it: exports of others are not touched. Other parameters are those of `export_checkpoint`. Raises NoCheckpoint,
    CheckpointError (also for an invalid run folder), StorageError.
    """
    run_folder = run_folder if is_exact else trained_folder(workspace, run_folder, trainjob)
    output = _output(workspace, run_folder)
    writers = recorded_writers(output) if trainjob else None
    if writers is not None and trainjob not in [writer.name for writer in writers]:
        others = ", ".join(dict.fromkeys(writer.name for writer in writers)) or "none"
        raise NoCheckpoint(
            f"{output} has no checkpoints of the TrainJob {trainjob}; it was written by: {others}. "
            "Specify one of these jobs, or no job"
        )
    target = StorageUri.parse(export_uri).join(export_name(run_folder))
    if owner:
        _check_owner(target, owner)
        metadata = {OWNER: owner, **(metadata or {})}
    if target.scheme == "file" and target.path.is_symlink():
        raise CheckpointError(f"{target} is a link; remove it: a run exports only to its own folder")
    return export_checkpoint(
        output, target, source=f"{run}/{trainjob}", options=options, metadata=metadata, start_progress=start_progress
    )


def trained_folder(workspace: Path, run_folder: str, trainjob: str = "") -> str:
    """Return the folder that a run's training has written to: that of the run, or one of a step below it.

    With `trainjob` it is the one that has the digest of the job's step in its name, or that records the job, else the only one that
    may be the job's. Of the folders in which a step has trained again it is that of the job, or the last one. Raises CheckpointError
    if that leaves several, since another training's checkpoint would be exported; StorageError.
    """
    if "/" in run_folder.removeprefix(f"{RUNS}/"):  # the caller names the training
        return run_folder
    run_folder = f"{RUNS}/{run_folder.removeprefix(f'{RUNS}/')}"
    path = workspace / run_folder
    with disk_errors(path):
        below = [] if path.is_symlink() else [folder for folder in sorted(path.glob("*")) if folder.is_dir()]
    if digest := step_digest(trainjob):  # the folder exists as soon as a pod has started, whether or not it has saved anything
        of_step = [folder for folder in below if step_digest(folder.name) == digest]
        # The record is certain, also if the step has trained again.
        if (recorded := _last_recorded(trainjob, [path, *of_step])) is not None:
            return run_folder if recorded == path else f"{run_folder}/{recorded.name}"
        # The job has recorded nothing yet: the last attempt that had begun before it.
        if of_job := [folder.name for folder in of_step if step_attempt(folder.name) <= step_attempt(trainjob)]:
            return f"{run_folder}/{max(of_job, key=step_attempt)}"
        below = [folder for folder in below if not step_digest(folder.name)]  # those are of other jobs, or begun later
    last = {step_folder(folder.name): folder for folder in sorted(below, key=lambda each: step_attempt(each.name))}
    again = [folder for folder in last.values() if folder.name.startswith(f"{AGAIN}-") and step_attempt(folder.name) > 1]
    if again and not trainjob:  # a step that has trained again means its last training
        return f"{run_folder}/{again[-1].name}"
    steps = {f"{run_folder}/{folder.name}": folder / OUTPUT for folder in last.values() if _is_output(folder / OUTPUT)}
    found = {run_folder: path / OUTPUT, **steps} if _is_output(path / OUTPUT) else steps
    if trainjob:
        by_job = [name for name, output in found.items() if trainjob in [one.name for one in recorded_writers(output) or []]]
        if by_job:
            return by_job[0]
    if not found or (run_folder in found and not trainjob):  # the folder of the run, also for the error that it has no checkpoint
        return run_folder
    if len(found) > 1:
        unknown = f", none of which records the TrainJob {trainjob}" if trainjob else ""
        raise CheckpointError(
            f"{path} has the outputs of several trainings{unknown}: {', '.join(found)}; set folder to that of the training"
        )
    return next(iter(found))


def _last_recorded(trainjob: str, folders: Sequence[Path]) -> Path | None:
    """Return the folder whose output records the job as its last writer; of several the newest, as a name may be given again."""
    found = [folder for folder in folders if (writers := recorded_writers(folder / OUTPUT)) and writers[-1].name == trainjob]
    return max(found, key=lambda folder: (folder / OUTPUT / JOBS).stat().st_mtime, default=None)


def _is_output(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.parent.is_symlink()


def _check_owner(target: StorageUri, owner: str) -> None:
    """Raise CheckpointError if the exports there belong to another pipeline or DAG."""
    store = open_store(target)
    if (latest := latest_export(store)) is None:  # no exports yet
        return
    try:
        other = read_export(store.below(latest[0])).manifest.metadata.get(OWNER)
    except NoCheckpoint:  # it has been removed, or is just being superseded
        return
    if other not in (None, owner):
        raise CheckpointError(
            f"{target} has exports of {other}, and this is {owner}: they are not mixed; use another export_uri or run_id"
        )


def _output(workspace: Path, run_folder: str) -> Path:
    try:
        folder = step_path(workspace, run_folder)
    except WorkspaceError as error:
        raise CheckpointError(str(error)) from error
    output = folder / OUTPUT
    with disk_errors(folder):
        if output.is_symlink():
            raise CheckpointError(f"{output} is a link; remove it: checkpoints are exported only from the run's own folder")
    return output


def exports_of_run(export_uri: str, run: str) -> str:
    """Return the URI of a run's own folder below `export_uri`, as `export_run` uses it. Raises BadUri."""
    return str(StorageUri.parse(export_uri).join(run_name(run_folder_name(run))))


def run_of_output(output: Path) -> str:
    """Return the id of the run that an output folder belongs to.

    That is the name of the run's folder, `runs/NAME/output`, else of the last job that has trained there, else of the folder.
    Raises StorageError, CheckpointError if none of them names a run.
    """
    folder = output.absolute()
    if folder.name == OUTPUT and folder.parent.parent.name == RUNS:  # a run of a workspace
        return folder.parent.name
    if writers := recorded_writers(output):
        return writers[-1].name
    name = folder.parent.name if folder.name == OUTPUT else folder.name
    if not name:
        raise CheckpointError(f"{output}: the folder does not tell the run; name it")
    return name
