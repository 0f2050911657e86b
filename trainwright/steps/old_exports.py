"""Deletes the exports of earlier runs of a repeated training, so that a store does not grow with every run.

Only exports that the caller knows as its own are touched: other trainings may export to the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trainwright.checkpoints.catalog import NAME
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.merged.merged_export import merged_folder
from trainwright.checkpoints.prune import delete_run_exports
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)


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
        run = _run_folder(export_uri, uri)
        if run:
            runs.pop(run, None)  # a run that published again is as young as that
            runs[run] = (uri, digest)
    deleted = list[str]()
    for run, (uri, digest) in list(runs.items())[:-keep] if keep else []:
        try:
            open_export(uri, digest)
        except NoCheckpoint:  # it was deleted by an earlier run
            continue
        except CheckpointError as error:
            log.warning("an export is kept, as it is not what was published: %s", error)
            continue
        gone = delete_run_exports(run)
        if gone:  # what was merged of a pinned adapter is served, perhaps
            gone += delete_run_exports(merged_folder(run))
        deleted += [each.export.uri for each in gone]
    return deleted


def _run_folder(export_uri: str, uri: str) -> str:
    """Return the URI of the run's folder of an export at EXPORT_URI/RUN/NAME, else an empty text."""
    root, parts = str(StorageUri.parse(export_uri)).rstrip("/"), uri.rsplit("/", 2)
    if len(parts) != 3 or parts[0] != root or parts[1].startswith(".") or not NAME.fullmatch(parts[2]):
        return ""
    return f"{root}/{parts[1]}"
