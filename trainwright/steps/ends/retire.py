"""Ends a run: updates its record, and deletes the folders of earlier runs according to the retention."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.cluster.protocol import Cluster
from trainwright.steps.requests import RetireFolder
from trainwright.storage.open import check_mounted
from trainwright.storage.uri import StorageUri
from trainwright.workspace import RUNS, WorkspaceError, drop_empty_run, end_run, parse_retention, prune_runs, read_run, run_folder
from trainwright.workspace.layout import run_name

log = logging.getLogger(__name__)


def retire_run(
    cluster: Cluster | None, workspace: Path, *, run_id: str, namespace: str, retention: str = "always", map_index: int = -1
) -> list[str]:
    """Record that a run has ended, and delete the folders of other runs beyond `retention` (`always`, or `keep=N` ended runs).

    The folder of a run without output is deleted. Folders of live runs are kept: those with an unfinished TrainJob and, if the
    cluster cannot be queried, all unfinished runs.
    Returns the names of the deleted folders. Raises ValueError (retention), WorkspaceError, StorageError.
    """
    return retire_folder(
        workspace,
        **retirement(cluster, run_id=run_id, namespace=namespace, retention=retention, map_index=map_index).by_name(),
    )


def retirement(
    cluster: Cluster | None, *, run_id: str, namespace: str, retention: str = "always", map_index: int = -1
) -> RetireFolder:
    """Return what a step on the workspace is asked, which asks no cluster."""
    live = live_folders(cluster, namespace) if cluster is not None and parse_retention(retention) is not None else None
    return RetireFolder(folder=run_folder(run_id, map_index), retention=retention, live=live)


def retire_folder(workspace: Path, *, folder: str, retention: str, live: list[str] | None) -> list[str]:
    """As `retire_run`, with the run's folder, and in `live` the folders of `live_folders`. Raises NotMounted, too."""
    keep = parse_retention(retention)
    check_mounted(StorageUri.from_path(workspace))
    if read_run(workspace / folder) is not None and not drop_empty_run(workspace, folder):
        end_run(workspace, folder)
    if keep is None:  # every run is kept
        return []
    deleted = prune_runs(
        workspace, keep=keep, current=folder, live=live or (), is_cluster_state_known=live is not None, now=time.time()
    )
    if deleted:
        log.info("run folders deleted workspace=%s count=%d names=%s", workspace, len(deleted), " ".join(deleted))
    return deleted


def live_folders(cluster: Cluster, namespace: str) -> list[str] | None:
    """Return the run folders of unfinished TrainJobs, on any claim, or None if they cannot be listed."""
    try:
        jobs = cluster.list(TRAINJOB, namespace).items
    except ApiError as error:  # unknown is not none: folders of unfinished runs are kept then
        log.warning("TrainJobs cannot be listed, so unfinished runs are not deleted error=%s", error.message)
        return None
    return [folder for job in jobs if not is_finished(job) for folder in _folders(annotations_of(job))]


def _folders(annotations: dict[str, str]) -> Iterator[str]:
    """Yield all run folders that a job's folder may mean: a folder of the claim, or a run, may also be named `runs`."""
    parts = annotations.get(names.RUN_FOLDER_ANNOTATION, "").split("/")
    for before, name in pairwise(parts):
        with contextlib.suppress(WorkspaceError):  # not written by Trainwright
            if before == RUNS:
                yield f"{RUNS}/{run_name(name)}"
