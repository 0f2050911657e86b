"""One definition of each step: its parameters, their defaults and their words, for components, operators and pods."""

from trainwright.steps.requests.data import InitializeDataset, InitializeModel, PreprocessDataset, PullDvcData
from trainwright.steps.requests.exports import (
    CollectEvaluation,
    EvaluateExport,
    ExportBeside,
    ExportCheckpoint,
    Harness,
    PromoteModel,
    ReadChampion,
    RegisterModel,
    RestoreForEvaluation,
    RollBackModel,
    RollBackOnce,
)
from trainwright.steps.requests.forms import FineTuning, FullPipeline, Retraining, StartRun, Sweep
from trainwright.steps.requests.run import Run, RunPlace, RunSteps
from trainwright.steps.requests.runs import RetireFolder
from trainwright.steps.requests.step_job import FilesJob, StepJob, job_request
from trainwright.steps.requests.step_request import StepRequest, StepRun
from trainwright.steps.requests.sweep import BeginTrials, EndTrials, PickTrial, PlanTrials

__all__ = [
    "BeginTrials",
    "CollectEvaluation",
    "EndTrials",
    "EvaluateExport",
    "ExportBeside",
    "ExportCheckpoint",
    "FilesJob",
    "FineTuning",
    "FullPipeline",
    "Harness",
    "InitializeDataset",
    "InitializeModel",
    "PickTrial",
    "PlanTrials",
    "PreprocessDataset",
    "PromoteModel",
    "PullDvcData",
    "ReadChampion",
    "RegisterModel",
    "RestoreForEvaluation",
    "RetireFolder",
    "Retraining",
    "RollBackModel",
    "RollBackOnce",
    "Run",
    "RunPlace",
    "RunSteps",
    "StartRun",
    "StepJob",
    "StepRequest",
    "StepRun",
    "Sweep",
    "job_request",
]
