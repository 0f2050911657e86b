"""Exports a run's checkpoint, records the export in the run's record, and deletes the exports of earlier runs of a repeated
training.

Only exports that the caller knows as its own are deleted: other trainings may export to the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwright.checkpoints.catalog import NAME
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.export_run import export_run
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.manifest import USAGE
from trainwright.checkpoints.merged.merged_export import export_merged, is_adapter, merged_folder
from trainwright.checkpoints.prune import delete_run_exports
from trainwright.checkpoints.publish import ExportOptions, ExportResult
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.model_card import export_page
from trainwright.steps.requests import StepRun
from trainwright.storage.progress_log import log_progress
from trainwright.storage.uri import StorageUri
from trainwright.workspace import read_run, run_folder, touch_run
from trainwright.workspace.run_record import FINDINGS, recorded_findings

log = logging.getLogger(__name__)
NOT_KNOWN: Mapping[str, Any] = MappingProxyType({})


def export_run_checkpoint(
    workspace: Path,
    export_uri: str,
    *,
    run_id: str,
    trainjob: str = "",
    map_index: int = -1,
    owner: str = "",
    folder: str = "",
    usage: Mapping[str, Any] = NOT_KNOWN,
    options: ExportOptions | None = None,
    write_progress: Callable[[str], object] | None = None,
) -> ExportResult:
    """Export the run's newest complete checkpoint to the run's own folder below `export_uri`.

    `folder` is that of one training of the run, as its step returns it; by default it is found, see `trained_folder`. `owner` is who
    runs it, as `kfp` or `airflow/DAG`: exports of others are not touched. `usage` is what the training used, for the card. A line
    about the progress now and then goes to `write_progress`, by default to the log.

    Raises NoCheckpoint, CheckpointError (also if `trainjob` did not write the checkpoint), StorageError.
    """
    is_exact, folder = bool(folder), folder or run_folder(run_id, map_index)
    progress = log_progress("export") if write_progress is None else log_progress("export", write=write_progress)
    exported = export_run(
        workspace,
        folder,
        export_uri,
        run=run_id,
        trainjob=trainjob,
        is_exact=is_exact,
        owner=owner,
        options=options,
        metadata=_metadata(workspace, run_id, folder, usage) or None,
        start_progress=progress,
    )
    if read_run(workspace / folder) is not None:
        touch_run(workspace, folder, exported=exported.uri)
    return exported


def _metadata(workspace: Path, run_id: str, folder: str, usage: Mapping[str, Any]) -> dict[str, object]:
    """Return what readers of the export must know: what the training used, and the verdict on its dataset."""
    findings = recorded_findings(workspace / folder, workspace / run_folder(run_id))
    return {**({USAGE: dict(usage)} if usage else {}), **({FINDINGS: findings} if findings else {})}


def export_merged_model(workspace: Path, exported: ExportResult, run: StepRun, folder: str = "") -> ExportResult:
    """Export the merged model of an exported adapter; that of a full model is its export. Raises as `export_merged`."""
    if not is_adapter(exported.manifest):  # a whole model has nothing to merge into
        return exported
    merged = export_merged(workspace, folder or run_folder(run.run_id, run.map_index), exported.uri, exported.digest)
    log.info("event=merged_model_exported uri=%s adapter=%s", merged.uri, exported.uri)
    return merged


def manifest_text(uri: str, digest: str) -> bytes:
    """Return the manifest of a published export. Raises NoCheckpoint, CheckpointError, StorageError."""
    return open_export(uri, digest).manifest.text()


def describe_export(uri: str, digest: str) -> str:
    """Return a page about a published export in Markdown. Raises NoCheckpoint, CheckpointError, StorageError."""
    return export_page(read_facts(open_export(uri, digest)))


def delete_old_exports(export_uri: str, published: Sequence[tuple[str, str]], *, keep: int) -> list[str]:
    """Delete the exports of the runs that published something, but for those of the last `keep` runs; 0 keeps all.

    `published` are URIs of exports with the digests of their manifests, the oldest first. A run with a promoted or otherwise pinned
    export is kept, as is what is not below `export_uri` any more or has another digest. Returns the URIs of the deleted exports.
    Raises CheckpointError for an invalid manifest, ValueError for a negative `keep`, StorageError.
    """
    if keep < 0:
        raise ValueError(f"keep: {keep} must not be negative")
    runs = dict[str, tuple[str, str]]()
    for uri, digest in published:
        root, parts = str(StorageUri.parse(export_uri)).rstrip("/"), uri.rsplit("/", 2)
        if len(parts) == 3 and parts[0] == root and not parts[1].startswith(".") and NAME.fullmatch(parts[2]):
            run = f"{root}/{parts[1]}"
            runs.pop(run, None)  # a run that published again is as young as that
            runs[run] = (uri, digest)
    deleted = list[str]()
    for run, (uri, digest) in list(runs.items())[:-keep] if keep else []:
        try:
            open_export(uri, digest)
        except NoCheckpoint:  # it was deleted by an earlier run
            continue
        except CheckpointError as error:  # it was replaced since: whose it is now is not known
            log.warning("an export is kept, as it is not what was published: %s", error)
            continue
        gone = delete_run_exports(run)
        if gone:  # what was merged of a pinned adapter is served, perhaps
            gone += delete_run_exports(merged_folder(run))
        deleted += [each.export.uri for each in gone]
    return deleted
