"""The builtin trainer of a training, as far as it is known without the cluster, and whether the prepared rows are for it."""

from __future__ import annotations

from pathlib import Path

from trainwright.initializers.trainer_rows import check_receipt
from trainwright.jobs.manifest.training_program import own_program
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.trainers.builtin_trainers import named_trainer, trainer_for
from trainwright.runtimes import bundled_runtime
from trainwright.workspace.layout import prepared_path
from trainwright.workspace.receipt import read_receipt


def row_trainer(request: TrainRequest) -> str:
    """Return the name of the builtin trainer; empty for another program, and for a runtime that only the cluster knows.

    Raises NoSuchTrainer.
    """
    if request.builtin:
        return named_trainer(request.builtin).name
    runtime = None if request.has_program else bundled_runtime(request.runtime_name)
    trainer = trainer_for(request, runtime, own_program(request, runtime)) if runtime is not None else None
    return trainer.name if trainer is not None else ""


def check_prepared_rows(request: TrainRequest, workspace_path: str) -> None:
    """Check the rows of the prepared dataset before a job is submitted for them, if this process sees the workspace.

    Otherwise the initializer of the job does. Raises InitializerError, NoSuchTrainer.
    """
    if not workspace_path or not request.dataset_digest:
        return
    receipt = read_receipt(prepared_path(Path(workspace_path), "dataset", request.dataset_digest))
    if receipt is not None:
        check_receipt(receipt, row_trainer(request))
