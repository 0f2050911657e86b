"""The end of a run: noted in its record, and the folders of earlier runs deleted as far as they are not to be kept."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.cluster.protocol import Cluster
from trainwright.workspace import RUNS, end_run, parse_retention, prune_runs, read_run, run_folder

log = logging.getLogger(__name__)


def retire_run(
    cluster: Cluster | None, workspace: Path, *, run_id: str, namespace: str, retention: str = "always", map_index: int = -1
) -> list[str]:
    """Note that a run has ended, and delete the folders of others beyond `retention` (`always`, or `keep=N` of the ended ones).

    Never those of a live run: one whose TrainJob is unfinished, and, where the cluster cannot be asked, any without an end.
    Returns the names of the folders that were deleted. Raises ValueError (retention), WorkspaceError, StorageError.
    """
    keep = parse_retention(retention)
    folder = run_folder(run_id, map_index)
    if read_run(workspace / folder) is not None:
        end_run(workspace, folder)
    if keep is None:
        return []
    live = _live_folders(cluster, namespace) if cluster is not None else None
    deleted = prune_runs(
        workspace, keep=keep, current=folder, live=live or (), cluster_asked=live is not None, now=time.time()
    )
    if deleted:
        log.info("run folders deleted workspace=%s count=%d names=%s", workspace, len(deleted), " ".join(deleted))
    return deleted


def _live_folders(cluster: Cluster, namespace: str) -> list[str] | None:
    """The folders that unfinished TrainJobs write to, on any claim; None where they cannot be listed."""
    try:
        jobs = cluster.list(TRAINJOB, namespace).items
    except ApiError as error:
        log.warning("live runs are not known, and none without an end is deleted error=%s", error.message)
        return None
    uris = [annotations_of(job).get(names.RUN_FOLDER_ANNOTATION, "") for job in jobs if not is_finished(job)]
    return [f"{RUNS}/{uri.rpartition(f'/{RUNS}/')[2]}" for uri in uris if f"/{RUNS}/" in uri]
