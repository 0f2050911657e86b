"""The Airflow provider: operators that start a run, prepare a dataset and a model, train, export the checkpoint and evaluate it.

Modules are imported lazily (PEP 562), because Airflow reads the provider information during its own import.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "EvaluateOperator": "evaluate",
    "ExportCheckpointOperator": "export_checkpoint",
    "InitializeDatasetOperator": "initialize_dataset",
    "InitializeModelOperator": "initialize_model",
    "StartRunOperator": "start_run",
    "TrainJobOperator": "train_job",
    "TrainJobTrigger": "trigger",
    "TrainwrightHook": "hook",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
