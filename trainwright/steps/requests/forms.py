"""The forms with which a person starts a pipeline or a DAG: at most 20 fields, of which nearly everyone needs some.

All other settings go, by their names, into one structure for each phase: `training`, `data` and `evaluation`; see `phases`. KFP's form
sorts fields by name, so that a description begins with its phase there; Airflow's has the fields in this order, in sections.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trainwright.jobs.request.setting_types import Resources
from trainwright.steps.requests.step_request import Count, Items, Object, StepRequest, Texts

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Decision = Literal["", "better", "always"]
_PROMOTE = "Promote the export to champion: if it is better than the present one, or always. Empty: no."
MOST_FIELDS = 20
"""Of a form, whoever shows it."""


def _field(section: str, description: str, default: Any = "", *, example: str = "") -> Any:
    return Field(default, description=description, json_schema_extra={"group": section, "example": example})


def _required(section: str, description: str, *, example: str) -> Any:
    return _field(section, description, ..., example=example)


class _Exports(StepRequest):
    model_uri: str = _required(
        "Model", "Base model: hf://, s3://, gs://, az://, pvc:// or file:///path.", example="hf://Qwen/Qwen3-0.6B"
    )
    export_uri: str = _required(
        "Export", "Folder of exported checkpoints; each run has its own below it.", example="s3://models/support"
    )


class _Dataset(StepRequest):
    dataset_uri: str = _required(
        "Data", "Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path.", example="s3://data/support.jsonl"
    )


class _Run(StepRequest):
    workspace: str = _required(
        "Run",
        "Claim that the steps of a run share: its name, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it. With several "
        "nodes it must be ReadWriteMany.",
        example="pvc://training?size=50Gi",
    )
    num_nodes: Count = _field("Training", "Number of nodes. 0: the runtime's, usually 1.", 0, example="2")
    resources_per_node: Resources = _field(
        "Training",
        "Resources of each node. Empty: the runtime's; a GPU must be asked for.",
        {},
        example='{"nvidia.com/gpu": 1, "memory": "32Gi"}',
    )
    queue_name: str = _field("Run", "Kueue LocalQueue that the jobs wait in. Empty: they start at once.", example="gpu-queue")


class _Method(StepRequest):
    method: Literal["", "lora", "qlora", "full"] = _field(
        "Training",
        "lora, qlora with a base model in 4 bits, or full to train all weights. Empty: the trainer's default (sft: lora).",
    )


class _Tuning(_Method):
    runtime: str = _field(
        "Training",
        "Training runtime. Empty: trl-sft for supervised fine-tuning, or that of training.builtin.",
        example="torch-distributed",
    )
    epochs: Amount = _field("Training", "Passes over the training rows. 0: the trainer's default (sft: 1).", 0.0, example="3")
    learning_rate: Amount = _field("Training", "Learning rate. 0: the trainer's default (sft: 2e-4).", 0.0, example="0.0001")


class _Rows(StepRequest):
    batch_size: Count = _field("Training", "Rows per step and process. 0: the trainer's default (sft: 8).", 0)
    max_length: Count = _field("Training", "Tokens of a row; longer ones are cut. 0: the trainer's default (sft: 1024).", 0)


class _Phases(StepRequest):
    training: Object = _field(
        "Training",
        "Any other setting of the training and its run by name, see docs/reference/parameters.md.",
        {},
        example='{"image": "registry.example.com/trainer:1.4", "settings": {"save_steps": 100}}',
    )
    data: Object = _field(
        "Data",
        "Any other setting of the preparation of data by name.",
        {},
        example='{"layout": "messages", "test_fraction": 0.05}',
    )
    evaluation: Object = _field(
        "Evaluation",
        "Any other setting of export, evaluation, promotion and registration by name.",
        {},
        example='{"max_rows": 500, "promote_margin": 0.01}',
    )


class StartRun(_Phases, _Rows, _Tuning, _Run):
    """Check the settings of all steps of a run, and create its workspace if necessary."""

    defaults: Object = _field("Evaluation", "Settings of export and evaluation that hold unless `evaluation` has others.", {})
    export_uri: str = _field(
        "Export", "Folder of exported checkpoints, refused if later steps do not see it. Empty: not checked.", ""
    )
    registry: str = _field("Evaluation", "Registry of a later step, which must see the exports. Empty: none.", "")
    preprocesses: bool = _field("Data", "Whether a step preprocesses the data, whose settings `data` may have.", False)


class FineTuning(_Phases, _Rows, _Tuning, _Run, _Dataset, _Exports):
    """Fine-tune, export and evaluate, and, if asked for, promote and register."""

    promote: Decision = _field("Evaluation", _PROMOTE)
    registry: str = _field(
        "Evaluation",
        "Register the export: hf://org/name[@branch], model-registry://host/model or mlflow://model. Empty: no.",
        example="mlflow://support",
    )


class Retraining(_Phases, _Tuning, _Run, _Dataset, _Exports):
    """Train again if there are new data, and promote what is better than the champion."""

    promote: Literal["better", "always", "never"] = _field(
        "Evaluation", "When to promote: if better than the champion, always, or never, so that a person decides.", "better"
    )
    always_train: bool = _field("Run", "Whether to train even if the data and the base model are those of the champion.", False)
    warm_start: bool = _field("Training", "Whether to start from the champion's weights instead of the base model.", False)
    roll_back: bool = _field("Run", "Only restore the previous export of the alias, and train nothing.", False)


class Sweep(_Phases, _Run, _Dataset, _Exports):
    """Train once for each trial, and export what is best."""

    space: Object = _field(
        "Search",
        "For each setting the list of its values, or a range.",
        {},
        example='{"learning_rate": {"min": 1e-5, "max": 1e-3, "log": true}, "lora_rank": [8, 16]}',
    )
    trials: Items = _field(
        "Search",
        "Instead of a space: the settings of each trial.",
        [],
        example='[{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]',
    )
    max_trials: Count = _field("Search", "Maximum number of trials; 0: all combinations. Required for ranges.", 0, example="8")
    metric: str = _field(
        "Search", "Reported value by which trials are compared; eval_loss is measured on held-out rows.", "eval_loss"
    )
    promote: Decision = _field("Evaluation", _PROMOTE)
    seed: int = _field("Search", "Seed of the random choice of trials.", 0)
    greater_is_better: bool = _field("Search", "Whether a greater metric is better.", False)
    plan_only: bool = _field("Search", "Only choose the trials; the log of the step plan-trials lists them.", False)


class FullPipeline(_Phases, _Method, _Run, _Exports):
    """From versioned data to a registered model, with a tool for each part."""

    source: str = _field(
        "Data",
        "Data without dvc_repo: a path, file://, s3://, https://; DVC keeps a version of them.",
        example="s3://data/support",
    )
    dvc_repo: str = _field("Data", "Git repository with DVC: its address, or a path.", example="https://github.com/org/data")
    dvc_path: str = _field("Data", "File or folder in dvc_repo.", example="support/train.jsonl")
    dvc_rev: str = _field("Data", "Branch, tag or commit of dvc_repo. Empty: the default branch.", example="v3")
    promote: Decision = _field("Evaluation", _PROMOTE, "better")
    tracking: Texts = _field(
        "Training",
        "Where metrics go: mlflow, wandb, tensorboard, each also with an address; else they write to tracking/ in the workspace.",
        ["mlflow", "wandb", "tensorboard"],
    )
    registry: str = _field(
        "Evaluation",
        "Register the export: mlflow://model, hf://org/name[@branch] or model-registry://host/model. Empty: no.",
        "mlflow://trainwright",
    )
