"""Preparing the dataset and the model of a run: shared by digest on the workspace, and noted in the run's record."""

from __future__ import annotations

from pathlib import Path

from trainwright.initializers import DatasetOptions, prepare_dataset, prepare_model
from trainwright.workspace import Receipt, begin_run, run_folder


def prepare_run_dataset(
    uri: str, workspace: Path, options: DatasetOptions, *, owner: str = "", run_id: str = "", map_index: int = -1
) -> Receipt:
    """Prepare a dataset in `workspace/datasets/DIGEST`; with a run, its record says that the run uses it.

    Raises InitializerError, WorkspaceError, StorageError.
    """
    prepared = prepare_dataset(uri, workspace, options)
    if run_id:
        begin_run(workspace, run_folder(run_id, map_index), run=run_id, owner=owner, dataset=prepared.digest)
    return prepared.receipt


def prepare_run_model(uri: str, workspace: Path, *, owner: str = "", run_id: str = "", map_index: int = -1) -> Receipt:
    """The same for a model, in `workspace/models/DIGEST`."""
    prepared = prepare_model(uri, workspace)
    if run_id:
        begin_run(workspace, run_folder(run_id, map_index), run=run_id, owner=owner, model=prepared.digest)
    return prepared.receipt
