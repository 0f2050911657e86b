"""Publishes the merged model of an exported adapter as an export of its own, in the folder beside that of the adapter's run.

The adapter is taken from its export and the base model from the workspace, both by their digests, so that what is merged is what
the manifest of the merged export names.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export, open_export
from trainwright.checkpoints.hf_trainer import FORMAT
from trainwright.checkpoints.manifest import LOSS_ON, MERGED, OWNER, USAGE, Manifest
from trainwright.checkpoints.merged.lora import ADAPTER_CONFIG, WEIGHTS
from trainwright.checkpoints.merged.merge_adapter import merge_adapter
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.checkpoints.sources import SOURCES_KEY
from trainwright.checkpoints.training_start import STARTS_KEY
from trainwright.jobs.state.run_folder import RUNS, export_name
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.open import open_store
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.workspace.deletion import remove_tree
from trainwright.workspace.layout import prepared_path, step_path
from trainwright.workspace.prepared import verify_prepared
from trainwright.workspace.run_record import FINDINGS

log = logging.getLogger(__name__)
_SCRATCH = ".merging"


def is_adapter(manifest: Manifest) -> bool:
    """Whether an export is an adapter of PEFT, and no full model."""
    return {ADAPTER_CONFIG, WEIGHTS} <= {file.path for file in manifest.files}


def merged_folder(run_uri: str) -> str:
    """Return the URI of the folder with the merged exports of a run whose exports are in `run_uri`. No run has it as its own."""
    parent, _, name = run_uri.rstrip("/").rpartition("/")
    return f"{parent}/{export_name(f'{RUNS}/{name}/{MERGED}')}"


def export_merged(workspace: Path, folder: str, uri: str, digest: str) -> ExportResult:
    """Merge the adapter of the export at `uri` into its base model, and export that. `folder` is of the run, in `workspace`.

    An intact export of the same adapter and base model is returned. Raises CheckpointError for a base model that is not in the
    workspace (PreparedMismatch), an adapter that cannot be merged, and as `export_checkpoint`; StorageError, NoSpace.
    """
    if find_spec("numpy") is None:
        raise CheckpointError("merge_adapter needs numpy: pip install 'trainwright[merge]', or use the image launcher")
    adapter = open_export(uri, digest)
    if adapter.manifest.format != FORMAT:
        raise CheckpointError(f"{uri}: only adapters of the format {FORMAT} are merged, and this is {adapter.manifest.format}")
    base_digest = _base_of(adapter)
    about: dict[str, Any] = {"adapter": adapter.manifest.digest, "base_model": base_digest}
    target = merged_folder(str(StorageUri.parse(uri)).rpartition("/")[0])
    if (known := _exported_before(target, about)) is not None:
        return known
    base = prepared_path(workspace, "model", base_digest)
    verify_prepared("model", base, base_digest)
    scratch = step_path(workspace, folder) / _SCRATCH
    with disk_errors(scratch), file_lock(lock_path(scratch)):
        remove_tree(scratch)  # of a process that was killed
        try:
            name = f"checkpoint-{adapter.manifest.step}"
            restore_checkpoint(uri, scratch / "adapter" / name, digest=digest)
            merge_adapter(base, scratch / "adapter" / name, scratch / "model" / name)
            return export_checkpoint(
                scratch / "model",
                target,
                source=adapter.manifest.source,
                step=adapter.manifest.step,
                options=ExportOptions(resumable=False, supersede=True, quiet_seconds=0),
                metadata=_metadata(adapter.manifest, about),
            )
        finally:
            remove_tree(scratch)


def _base_of(adapter: Export) -> str:
    origin = adapter.manifest.metadata.get("origin")
    digest = origin.get("model") if isinstance(origin, dict) else None
    if not isinstance(digest, str) or not digest:
        raise CheckpointError(
            f"{adapter.uri}: the manifest does not record the base model, so that nothing can be merged; "
            "export it from a run with a prepared model"
        )
    return digest


def _exported_before(target: str, about: dict[str, Any]) -> ExportResult | None:
    """Return an intact export of the same, or None."""
    store = open_store(target)
    for listed in reversed(read_catalog(store).exports):
        if listed.export.manifest.metadata.get(MERGED) == about:
            try:
                manifest = verify_export(listed.export.uri, digest=listed.export.manifest.digest)
            except CheckpointError as error:
                log.warning("event=merged_export_damaged uri=%s reason=%r", listed.export.uri, str(error))
                return None
            return ExportResult(listed.export.uri, manifest, True, store.capabilities())
    return None


def _metadata(adapter: Manifest, about: dict[str, Any]) -> dict[str, object]:
    names = ("origin", SOURCES_KEY, STARTS_KEY, OWNER, USAGE, LOSS_ON, FINDINGS)
    return {**{name: adapter.metadata[name] for name in names if name in adapter.metadata}, MERGED: about}
