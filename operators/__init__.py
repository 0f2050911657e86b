"""The Airflow provider: operators that prepare data, train, export, evaluate, promote and register, and that stop jobs again.

Modules are imported lazily (PEP 562), because Airflow reads the provider information during its own import.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "CleanUpOperator": "clean_up",
    "Data": "groups",
    "Deferral": "groups",
    "DeleteTrainJobOperator": "delete_train_job",
    "Ending": "groups",
    "EvaluateOperator": "evaluate",
    "ExportCheckpointOperator": "export_checkpoint",
    "Harness": "groups",
    "InitializeDatasetOperator": "initialize_dataset",
    "InitializeModelOperator": "initialize_model",
    "Limits": "groups",
    "Logging": "groups",
    "PickTrialOperator": "sweep.pick_trial",
    "Placement": "groups",
    "PlanTrialsOperator": "sweep.plan_trials",
    "PreprocessDatasetOperator": "preprocess_dataset",
    "PromoteModelOperator": "promote_model",
    "PullDvcDataOperator": "pull_dvc_data",
    "ReadChampionOperator": "read_champion",
    "RegisterModelOperator": "register_model",
    "ResumeTrainJobOperator": "resume_train_job",
    "RetireRunOperator": "retire_run",
    "RollBackModelOperator": "roll_back_model",
    "Secrets": "groups",
    "StartRunOperator": "start_run",
    "StopHopelessTrialsOperator": "sweep.stop_hopeless_trials",
    "SuspendTrainJobOperator": "suspend_train_job",
    "TrainJobCompletionTrigger": "train_job_watcher",
    "TrainJobOperator": "train_job",
    "TrainJobSensor": "train_job_sensor",
    "TrainJobTrigger": "trigger",
    "TrainTrialOperator": "sweep.train_trial",
    "TrainwrightHook": "hook",
    "finetune": "finetuning",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
