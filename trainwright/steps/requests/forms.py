"""The forms with which a person starts a pipeline or a DAG: at most 20 fields, of which nearly everyone needs some.

All other settings go, by their names, into one structure for each phase: `training`, `data` and `evaluation`; see `phases`. KFP's form
sorts fields by name, so that a description begins with its phase there; Airflow's has the fields in this order, in sections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwright.jobs.request.setting import setting
from trainwright.jobs.request.setting_types import Amount, Count, Items, Object, Resources, Texts
from trainwright.steps.requests.step_request import StepRequest

Decision = Literal["", "better", "always"]
_PROMOTE = "Promote the export to champion: if it is better than the present one, or always. Empty: no."
MOST_FIELDS = 20
"""Of a form, whoever shows it."""


@dataclass(frozen=True, kw_only=True)
class _Exports(StepRequest):
    model_uri: str = setting(
        "Base model: hf://, s3://, gs://, az://, pvc:// or file:///path.", section="Model", example="hf://Qwen/Qwen3-0.6B"
    )
    export_uri: str = setting(
        "Folder of exported checkpoints; each run has its own below it.", section="Export", example="s3://models/support"
    )


@dataclass(frozen=True, kw_only=True)
class _Dataset(StepRequest):
    dataset_uri: str = setting(
        "Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path.",
        section="Data",
        example="s3://data/support.jsonl",
    )


@dataclass(frozen=True, kw_only=True)
class _Run(StepRequest):
    workspace: str = setting(
        "Claim that the steps of a run share: its name, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it. With several "
        "nodes it must be ReadWriteMany.",
        section="Run",
        example="pvc://training?size=50Gi",
        place="uri",
    )
    num_nodes: Count = setting("Number of nodes. 0: the runtime's, usually 1.", 0, section="Training", example="2")
    resources_per_node: Resources = setting(
        "Resources of each node. Empty: the runtime's; a GPU must be asked for.",
        {},
        section="Training",
        example='{"nvidia.com/gpu": 1, "memory": "32Gi"}',
    )
    queue_name: str = setting(
        "Kueue LocalQueue that the jobs wait in. Empty: they start at once.", "", section="Run", example="gpu-queue"
    )


@dataclass(frozen=True, kw_only=True)
class _Method(StepRequest):
    method: Literal["", "lora", "qlora", "full"] = setting(
        "lora, qlora with a base model in 4 bits, or full to train all weights. Empty: the trainer's default (sft: lora).",
        "",
        section="Training",
    )


@dataclass(frozen=True, kw_only=True)
class _Tuning(_Method):
    runtime: str = setting(
        "Training runtime. Empty: trl-sft for supervised fine-tuning, or that of training.builtin.",
        "",
        section="Training",
        example="torch-distributed",
    )
    epochs: Amount = setting(
        "Passes over the training rows. 0: the trainer's default (sft: 1).", 0.0, section="Training", example="3"
    )
    learning_rate: Amount = setting(
        "Learning rate. 0: the trainer's default (sft: 2e-4).", 0.0, section="Training", example="0.0001"
    )


@dataclass(frozen=True, kw_only=True)
class _Rows(StepRequest):
    batch_size: Count = setting("Rows per step and process. 0: the trainer's default (sft: 8).", 0, section="Training")
    max_length: Count = setting(
        "Tokens of a row; longer ones are cut. 0: the trainer's default (sft: 1024).", 0, section="Training"
    )


@dataclass(frozen=True, kw_only=True)
class _Phases(StepRequest):
    training: Object = setting(
        "Any other setting of the training and its run by name, see docs/reference/parameters.md.",
        {},
        section="Training",
        example='{"image": "registry.example.com/trainer:1.4", "settings": {"save_steps": 100}}',
    )
    data: Object = setting(
        "Any other setting of the preparation of data by name.",
        {},
        section="Data",
        example='{"layout": "messages", "test_fraction": 0.05}',
    )
    evaluation: Object = setting(
        "Any other setting of export, evaluation, promotion and registration by name.",
        {},
        section="Evaluation",
        example='{"max_rows": 500, "promote_margin": 0.01}',
    )


@dataclass(frozen=True, kw_only=True)
class StartRun(_Phases, _Rows, _Tuning, _Run):
    """Check the settings of all steps of a run, and create its workspace if necessary."""

    defaults: Object = setting(
        "Settings of export and evaluation that hold unless `evaluation` has others.", {}, section="Evaluation"
    )
    export_uri: str = setting(
        "Folder of exported checkpoints, refused if later steps do not see it. Empty: not checked.",
        "",
        section="Export",
        place="uri",
    )
    registry: str = setting("Registry of a later step, which must see the exports. Empty: none.", "", section="Evaluation")
    store_secret: str = setting(
        "Secret with credentials of the object store, for the pods of the training.", "", section="Credentials"
    )
    hub_secret: str = setting("Secret with HF_TOKEN, for the pods of training and evaluation.", "", section="Credentials")
    preprocesses: bool = setting("Whether a step preprocesses the data, whose settings `data` may have.", False, section="Data")


@dataclass(frozen=True, kw_only=True)
class FineTuning(_Phases, _Rows, _Tuning, _Run, _Dataset, _Exports):
    """Fine-tune, export and evaluate, and, if asked for, promote and register."""

    promote: Decision = setting(_PROMOTE, "", section="Evaluation")
    registry: str = setting(
        "Register the export: hf://org/name[@branch], model-registry://host/model or mlflow://model. Empty: no.",
        "",
        section="Evaluation",
        example="mlflow://support",
    )


@dataclass(frozen=True, kw_only=True)
class Retraining(_Phases, _Tuning, _Run, _Dataset, _Exports):
    """Train again if there are new data, and promote what is better than the champion."""

    promote: Literal["better", "always", "never"] = setting(
        "When to promote: if better than the champion, always, or never, so that a person decides.",
        "better",
        section="Evaluation",
    )
    always_train: bool = setting(
        "Whether to train even if the data and the base model are those of the champion.", False, section="Run"
    )
    warm_start: bool = setting(
        "Whether to start from the champion's weights instead of the base model.", False, section="Training"
    )
    roll_back: bool = setting("Only restore the previous export of the alias, and train nothing.", False, section="Run")


@dataclass(frozen=True, kw_only=True)
class Sweep(_Phases, _Run, _Dataset, _Exports):
    """Train once for each trial, and export what is best."""

    space: Object = setting(
        "For each setting the list of its values, or a range.",
        {},
        section="Search",
        example='{"learning_rate": {"min": 1e-5, "max": 1e-3, "log": true}, "lora_rank": [8, 16]}',
    )
    trials: Items = setting(
        "Instead of a space: the settings of each trial.",
        [],
        section="Search",
        example='[{"learning_rate": 1e-4}, {"learning_rate": 2e-4}]',
    )
    max_trials: Count = setting(
        "Maximum number of trials; 0: all combinations. Required for ranges.", 0, section="Search", example="8"
    )
    metric: str = setting(
        "Reported value by which trials are compared; eval_loss is measured on held-out rows.", "eval_loss", section="Search"
    )
    promote: Decision = setting(_PROMOTE, "", section="Evaluation")
    seed: int = setting("Seed of the random choice of trials.", 0, section="Search")
    greater_is_better: bool = setting("Whether a greater metric is better.", False, section="Search")
    plan_only: bool = setting("Only choose the trials; the log of the step plan-trials lists them.", False, section="Search")


@dataclass(frozen=True, kw_only=True)
class FullPipeline(_Phases, _Method, _Run, _Exports):
    """From versioned data to a registered model, with a tool for each part."""

    source: str = setting(
        "Data without dvc_repo: a path, file://, s3://, https://; DVC keeps a version of them.",
        "",
        section="Data",
        example="s3://data/support",
    )
    dvc_repo: str = setting(
        "Git repository with DVC: its address, or a path.", "", section="Data", example="https://github.com/org/data"
    )
    dvc_path: str = setting("File or folder in dvc_repo.", "", section="Data", example="support/train.jsonl")
    dvc_rev: str = setting("Branch, tag or commit of dvc_repo. Empty: the default branch.", "", section="Data", example="v3")
    promote: Decision = setting(_PROMOTE, "better", section="Evaluation")
    tracking: Texts = setting(
        "Where metrics go: mlflow, wandb, tensorboard, each also with an address; else they write to tracking/ in the workspace.",
        ["mlflow", "wandb", "tensorboard"],
        section="Training",
    )
    registry: str = setting(
        "Register the export: mlflow://model, hf://org/name[@branch] or model-registry://host/model. Empty: no.",
        "mlflow://trainwright",
        section="Evaluation",
    )
