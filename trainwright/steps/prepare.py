"""Prepares the dataset and the model of a run in the shared store of the workspace, and adds them to the run's record."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.initializers import DatasetOptions, prepare_dataset, prepare_model
from trainwright.initializers.data_report.figures import DataReport
from trainwright.initializers.data_report.model_tokenizer import learns_messages
from trainwright.initializers.data_report.pages import write_pages
from trainwright.initializers.data_report.report import report_dataset, with_report
from trainwright.initializers.report_options import ReportOptions
from trainwright.storage.transfer import disk_errors
from trainwright.workspace import Receipt, WorkspaceError, begin_run, run_folder
from trainwright.workspace.layout import Kind, prepared_path, step_path
from trainwright.workspace.receipt import read_receipt


def prepare_run_dataset(
    uri: str,
    workspace: Path,
    options: DatasetOptions,
    report_options: ReportOptions,
    *,
    trainer: str = "",
    owner: str = "",
    run_id: str = "",
    map_index: int = -1,
) -> tuple[Receipt, DataReport]:
    """Prepare a dataset in `workspace/datasets/DIGEST`, and report on it. With a `run_id`, the run's record refers to it, and its
    folder has the report. The receipt has the figures of the report.

    Raises InitializerError (also for rows that the builtin `trainer` does not learn from), DataUnfit, WorkspaceError, StorageError.
    """
    as_messages = learns_messages(report_options, trainer)
    prepared = prepare_dataset(uri, workspace, options, trainer=trainer, as_messages=as_messages)
    report = report_dataset(prepared.folder, prepared.receipt, report_options)
    if run_id:
        folder = run_folder(run_id, map_index)
        begin_run(workspace, folder, run=run_id, owner=owner, dataset=prepared.digest)
        write_pages(report, step_path(workspace, folder))
    return with_report(prepared.receipt, report), report


def prepare_run_model(uri: str, workspace: Path, *, owner: str = "", run_id: str = "", map_index: int = -1) -> Receipt:
    """Prepare a model in `workspace/models/DIGEST`, like `prepare_run_dataset`."""
    prepared = prepare_model(uri, workspace)
    if run_id:
        begin_run(workspace, run_folder(run_id, map_index), run=run_id, owner=owner, model=prepared.digest)
    return prepared.receipt


def receipt_text(folder: Path, figures: Mapping[str, Any] | None = None) -> str:
    """Return the receipt of a prepared folder as JSON, with the figures of a report. Raises WorkspaceError without one."""
    receipt = read_receipt(folder)
    if receipt is None:
        raise WorkspaceError(f"{folder} has no receipt: it was removed meanwhile; run the step again")
    details = {**receipt.details, **({"report": figures} if figures else {})}
    return receipt.model_copy(update={"details": details}).model_dump_json(indent=1)


def copy_prepared(workspace: Path, kind: Kind, digest: str, target: Path) -> None:
    """Copy a prepared dataset or model to a new folder, or over what a retry finds there. Raises StorageError."""
    with disk_errors(target):
        shutil.copytree(prepared_path(workspace, kind, digest), target, dirs_exist_ok=True)
