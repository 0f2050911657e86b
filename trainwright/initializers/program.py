"""Runs a TrainJob's initializer step in one of three modes, chosen by its environment.

With a digest, the data was prepared before and is only verified. With a shared workspace, it is prepared there and linked into
the run's folder. Otherwise it is prepared in the target folder.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from trainwright.api.names import (
    DATASET_DIGEST_VARIABLE,
    DATASET_TRAINER_VARIABLE,
    DATASET_VARIABLES,
    MODEL_DIGEST_VARIABLE,
    RUN_FOLDER_VARIABLE,
    SHARED_VARIABLE,
)
from trainwright.initializers.columns import check_receipt
from trainwright.initializers.dataset import DatasetOptions, copy_dataset, initialize_dataset, prepare_dataset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.model import initialize_model, prepare_model
from trainwright.initializers.prepare import check_replaceable, swap_into_place
from trainwright.initializers.report_options import ReportOptions
from trainwright.storage.progress_log import log_progress
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.layout import Kind, step_path
from trainwright.workspace.prepared import Prepared, verify_prepared
from trainwright.workspace.receipt import Receipt, link_prepared, read_receipt

log = logging.getLogger(__name__)
DIGEST_VARIABLES = {"dataset": DATASET_DIGEST_VARIABLE, "model": MODEL_DIGEST_VARIABLE}


def run_initializer(kind: Kind, target: Path, environ: Mapping[str, str], *, as_is: bool = False) -> Receipt:
    """Prepare or verify according to the step's environment, with lines about the progress in the log. Returns the receipt.

    `as_is` copies a dataset as Trainer's initializer does, unless the environment has options for its rows, or names a prepared one.
    The options of the report are checked first. Raises InitializerError, WorkspaceError, StorageError, and pydantic's ValidationError
    for invalid options.
    """
    given = {field: text for field in ReportOptions.model_fields if (text := environ.get(_variable(field)))}
    of_report = ReportOptions.model_validate(given if kind == "dataset" else {})
    if digest := environ.get(DIGEST_VARIABLES[kind], ""):  # prepared before: nothing is fetched
        receipt = verify_prepared(kind, target, digest)
        if kind == "dataset":
            check_receipt(receipt, environ.get(DATASET_TRAINER_VARIABLE, ""))
        return receipt
    uri = environ.get("STORAGE_URI", "")
    if not uri:
        raise InitializerError("STORAGE_URI is not set; set the source in the TrainJob's spec.initializer")
    shared, folder = environ.get(SHARED_VARIABLE, ""), environ.get(RUN_FOLDER_VARIABLE, "")
    if shared and folder:  # other runs use the same preparation
        return _prepare_for_run(kind, uri, Path(shared), folder, environ, of_report)
    if kind == "model":
        return initialize_model(uri, target, ignore=_ignored(environ), start_progress=log_progress(kind))
    trainer, options = environ.get(DATASET_TRAINER_VARIABLE, ""), _options(environ)
    # Nothing asks for rows: the program reads the files of the source.
    if as_is and not trainer and (options is None or options == DatasetOptions(ignore=options.ignore)):
        return copy_dataset(uri, target, ignore=_ignored(environ), start_progress=log_progress(kind))
    receipt = initialize_dataset(
        uri, target, options, trainer=trainer, as_messages=_as_messages(of_report, trainer), start_progress=log_progress(kind)
    )
    return _reported(receipt, target, of_report)


def _as_messages(options: ReportOptions, trainer: str) -> bool:
    from trainwright.initializers.data_report.model_tokenizer import learns_messages

    return learns_messages(options, trainer)


def _reported(receipt: Receipt, folder: Path, options: ReportOptions) -> Receipt:
    """Report on the dataset in `folder`: its pages lie beside it, its figures are in the folder's receipt. Returns that."""
    from trainwright.initializers.data_report.pages import write_pages
    from trainwright.initializers.data_report.report import report_dataset, with_report

    report = report_dataset(folder, receipt, options)
    write_pages(report, folder.parent)
    reported = with_report(receipt, report)
    if read_receipt(folder) != reported:
        reported.write(folder)
    return reported


def _prepare_for_run(
    kind: Kind, uri: str, workspace: Path, folder: str, environ: Mapping[str, str], of_report: ReportOptions
) -> Receipt:
    destination = step_path(workspace, folder) / kind
    if kind == "model":
        prepared = prepare_model(uri, workspace, ignore=_ignored(environ), start_progress=log_progress(kind))
    else:
        trainer = environ.get(DATASET_TRAINER_VARIABLE, "")
        prepared = prepare_dataset(
            uri,
            workspace,
            _options(environ),
            trainer=trainer,
            as_messages=_as_messages(of_report, trainer),
            start_progress=log_progress(kind),
        )
    link_into_run(kind, prepared, destination)
    return _reported(prepared.receipt, destination, of_report) if kind == "dataset" else prepared.receipt


def link_into_run(kind: Kind, prepared: Prepared, destination: Path) -> None:
    """Create `destination` from the prepared folder, by hard links or copies. An identical folder is left unchanged.

    Raises InitializerError if `destination` has contents that Trainwright did not prepare, StorageError.
    """
    with disk_errors(destination):
        check_replaceable(kind, destination)
        existing = read_receipt(destination)
        # Linked by an earlier try.
        if existing is not None and existing.digest == prepared.digest and existing.matches(destination):
            return
        with scratch_folder(destination, prepared.digest) as scratch:
            link_prepared(prepared.receipt, prepared.folder, scratch)
            swap_into_place(kind, scratch, destination)
    log.info("%s linked into the run's folder from=%s to=%s", kind, prepared.folder, destination)


def _ignored(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, (pattern.strip() for pattern in environ.get("IGNORE_PATTERNS", "").split(","))))


def _options(environ: Mapping[str, str]) -> DatasetOptions | None:
    """Return the options in the environment, or None without any: then a result with any options is reused."""
    options: dict[str, object] = {"ignore": ignore} if (ignore := _ignored(environ)) else {}
    for field in ("layout", "test_fraction", "max_rows", "columns", "subset", "split", "drop_overlap"):
        if text := environ.get(_variable(field)):
            options[field] = text
    return DatasetOptions.model_validate(options) if options else None


def _variable(field: str) -> str:
    return f"{DATASET_VARIABLES}{field.upper()}"
