"""The workspace shared by many runs: prepared datasets and models by digest, and one folder per run."""

from trainwright.workspace.layout import (
    DATASETS,
    MODELS,
    RUNS,
    PreparedMismatch,
    WorkspaceError,
    apply_umask,
    prepared_folder,
    run_folder,
)
from trainwright.workspace.prepared import Prepared, check_prepared, publish, verify_prepared
from trainwright.workspace.receipt import Receipt, read_receipt
from trainwright.workspace.retention import parse_retention, prune_runs
from trainwright.workspace.run_record import RunRecord, begin_run, drop_empty_run, end_run, read_run, touch_run

__all__ = [
    "DATASETS",
    "MODELS",
    "RUNS",
    "Prepared",
    "PreparedMismatch",
    "Receipt",
    "RunRecord",
    "WorkspaceError",
    "apply_umask",
    "begin_run",
    "check_prepared",
    "drop_empty_run",
    "end_run",
    "parse_retention",
    "prepared_folder",
    "prune_runs",
    "publish",
    "read_receipt",
    "read_run",
    "run_folder",
    "touch_run",
    "verify_prepared",
]
