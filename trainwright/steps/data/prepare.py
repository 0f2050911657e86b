"""Prepares the data of a run: pulls a version, preprocesses it, and puts the dataset and the model into the shared store of the
workspace.

The run's record says which version and which operations it used, and what was prepared. Only the step that prepares a model has its
files, and so its sizes, for the estimate of the training's memory.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.whole_files import count_parameters
from trainwright.initializers import DatasetOptions, prepare_dataset, prepare_model
from trainwright.initializers.data_report.figures import DataReport
from trainwright.initializers.data_report.model_tokenizer import learns_messages
from trainwright.initializers.data_report.pages import write_pages
from trainwright.initializers.data_report.report import report_dataset, with_report
from trainwright.initializers.report_options import ReportOptions
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.storage.errors import StorageError
from trainwright.storage.plain_files import open_plain
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.text.text_input import Unreadable, read_json
from trainwright.tools.dvc_data import DvcData, pull_dvc_data
from trainwright.tools.ray_preprocess import Preprocessed, preprocess_dataset
from trainwright.workspace import Receipt, WorkspaceError, begin_run, run_folder
from trainwright.workspace.layout import Kind, prepared_path, step_path
from trainwright.workspace.receipt import read_receipt

_CONFIG, _MOST_BYTES = "config.json", 4 * 2**20
log = logging.getLogger(__name__)


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


def prepared_shape(folder: Path) -> dict[str, Any]:
    """Return the sizes of the model in a folder, for the setting `model_shape`; empty for one that is no decoder of known sizes.

    The parameters are counted in the headers of its safetensors files.
    """
    try:
        with open_plain(folder / _CONFIG) as file:
            config = read_json(file.read(_MOST_BYTES).decode("utf-8"))
        if not isinstance(config, dict):  # no model of transformers
            return {}
        parameters = sum(count_parameters(file) for file in sorted(folder.glob("*.safetensors")))
        shape = ModelShape.of_config(config, parameters)
    except (OSError, StorageError, Unreadable, ValueError, KeyError, TypeError) as error:  # an estimate is worth no failure
        log.warning("event=model_shape_not_read folder=%s error=%s", folder.name, error)
        return {}
    return shape.as_json() if shape is not None else {}


def pull_run_data(
    workspace: Path,
    *,
    owner: str = "",
    run_id: str = "",
    map_index: int = -1,
    on_line: Callable[[str], None] | None = None,
    **options: Any,
) -> DvcData:
    """Pull a version of data with `pull_dvc_data` and its `options`. With a `run_id`, the run's record names the version.

    Raises ToolError, StorageError, WorkspaceError.
    """
    pulled = pull_dvc_data(workspace, on_line=on_line, **options)
    version = {"source": pulled.receipt.source, "revision": pulled.revision, "md5": pulled.md5, "digest": pulled.digest}
    _record(workspace, owner, run_id, map_index, {"dvc": {**version, "folder": _relative(pulled.folder, workspace)}})
    return pulled


def _record(workspace: Path, owner: str, run_id: str, map_index: int, inputs: dict[str, dict[str, str]]) -> None:
    if run_id:
        begin_run(workspace, run_folder(run_id, map_index), run=run_id, owner=owner, inputs=inputs)


def _relative(folder: Path, workspace: Path) -> str:
    return folder.relative_to(workspace.absolute()).as_posix()


def preprocess_run_data(
    workspace: Path,
    source: str,
    *,
    owner: str = "",
    run_id: str = "",
    map_index: int = -1,
    on_line: Callable[[str], None] | None = None,
    **options: Any,
) -> Preprocessed:
    """Preprocess a dataset with `preprocess_dataset` and its `options`. With a `run_id`, the run's record names the result.

    Raises ToolError, StorageError, WorkspaceError.
    """
    done = preprocess_dataset(workspace, source, on_line=on_line, **options)
    made = {"source": done.receipt.source, "digest": done.digest, "folder": _relative(done.folder, workspace)}
    _record(workspace, owner, run_id, map_index, {"preprocessed": made})
    return done


def data_uri(folder: Path) -> str:
    """Return the address of a folder as `initialize_dataset` takes it."""
    return str(StorageUri.from_path(folder))
