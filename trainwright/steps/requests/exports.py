"""What the steps that deal with exported checkpoints, with the trials of a sweep and with the end of a run are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from trainwright.jobs.request.setting import Check, Form, Settings, setting
from trainwright.jobs.request.setting_types import GROUP, Amount, Count, Items, Object, Texts, between
from trainwright.steps.requests.step_request import StepJob, StepRequest

_EXPORTS = "Folder of all exports, as for the export of a checkpoint."
_DIGEST = "Digest of its manifest; any other content is rejected."
_ALIAS = "champion, challenger, or another name."


@dataclass(frozen=True, kw_only=True)
class ExportCheckpoint(StepRequest):
    """Copy a complete checkpoint of a run, the last or the best one, to a store."""

    export_uri: str = setting(
        "file:///path or s3://bucket/prefix for exports; each run has its own folder below it.",
        example="s3://models/support",
        place="uri",
    )
    trainjob: str = setting("TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.", "")
    folder: str = setting("Folder of the training in the workspace, as the training returns it. Empty: that of the TrainJob.", "")
    which: Literal["", "last", "best"] = setting(
        "last, or best: the checkpoint with the best metric of the training (needs eval_strategy and --load_best_model_at_end, or "
        "--metric_for_best_model). Empty: best if the training loads the best at its end, else last.",
        "",
    )
    resumable: bool = setting(
        "Whether to export optimizer and random states too, so that a training can resume from there.", True
    )
    supersede: bool = setting("Whether to publish also if the run has another export of this step with other files.", False)
    best_metric: str = setting("Logged metric that chooses the run's best export, which best.json names.", "eval_loss")
    greater_is_better: bool = setting("Whether a greater best_metric is better.", False)
    usage: Object = setting("What the training used, as its step returns it, for the card.", {})
    merge_adapter: bool = setting(
        "Whether to export also the model that results from merging the adapter into its base model, beside the adapter's exports.",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class ExportBeside(ExportCheckpoint):
    """As ExportCheckpoint while the training goes on; nothing is exported as long as there is no complete checkpoint."""

    is_asked_again: ClassVar[bool] = True

    look: int = setting("Makes each call unique.")


@dataclass(frozen=True, kw_only=True)
class Harness(Settings):
    """How lm-evaluation-harness runs its tasks."""

    few_shot: Annotated[int, Check(between(-1)), Form("integer")] = setting(
        "Examples in each prompt of a task; -1: as the task says.", -1
    )
    task_limit: Count = setting("Maximum number of examples of each task; 0: all.", 0)


@dataclass(frozen=True, kw_only=True)
class EvaluateExport(StepJob, StepRequest):
    """Measure the loss of an export and of its base model, in a job."""

    checkpoint_uri: str = setting("URI of the exported checkpoint.", place="uri")
    checkpoint_digest: str = setting(_DIGEST)
    runtime: str = setting("Training runtime of the evaluation.", "causal-lm-evaluation")
    sample_row: Count = setting("Row (from 0) whose prompt is completed before and after fine-tuning.", 0)
    max_rows: Count = setting("Evaluate only the first rows; 0 evaluates all held-out rows.", 0)
    dataset_digest: str = setting(
        "Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the same rows. "
        "Empty: that of the training.",
        "",
    )
    tasks: Texts = setting(
        "Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out rows. "
        "See docs/tools.md.",
        [],
        example='["arc_easy", "held_out"]',
    )
    harness: Annotated[Harness, GROUP] = setting(
        "How these tasks run: few_shot, task_limit.", Harness(), example='{"few_shot": 5}'
    )
    retention: str = setting("Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.", "always")


@dataclass(frozen=True, kw_only=True)
class PromoteModel(StepRequest):
    """Let an alias name an export if it is better than what the alias names now."""

    is_asked_again: ClassVar[bool] = True

    export_uri: str = setting(_EXPORTS, place="uri")
    checkpoint_uri: str = setting("Export to promote.", place="uri")
    checkpoint_digest: str = setting(_DIGEST)
    evaluation: Object = setting("Figures of the export, as its evaluation returns them.", {})
    champion_evaluation: Object = setting(
        "Figures of the champion on the same data. Empty: those recorded at its promotion, if of the same data.", {}
    )
    champion_digest: str = setting("Digest of the export that champion_evaluation is of.", "")
    rule: Literal["better", "always"] = setting("better, or always to promote without comparison.", "better")
    metric: str = setting("Figure to compare.", "loss")
    greater_is_better: bool = setting("Whether a greater metric is better.", False)
    margin: Amount = setting("By how much it must be better.", 0.0)
    allow_trained_rows: bool = setting(
        "Whether a figure of held-out rows counts if 5 % of these rows, or more, are trained on, too.", False
    )
    alias: str = setting(_ALIAS, "champion")
    training: Object = setting(
        "Settings that the export was trained with: if it is not promoted, they are remembered, so that ReadChampion finds no need "
        "to train the same again.",
        {},
    )


@dataclass(frozen=True, kw_only=True)
class RegisterModel(StepRequest):
    """Register an export in a registry of models."""

    checkpoint_uri: str = setting("Export to register.", place="uri")
    checkpoint_digest: str = setting(_DIGEST)
    registry: str = setting(
        "hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.",
        example="mlflow://support",
        place="uri",
    )
    name: str = setting("The model, if registry does not name it.", "")
    version: str = setting("Name of the version; a tag in the Hub. Not for MLflow.", "")
    alias: str = setting("Tag (Hub) or alias (MLflow) that is moved to the version, last.", "")
    with_training_state: bool = setting("Whether to upload optimizer and random states too. Hub only.", False)
    log_run: bool = setting("Whether to log the training metrics as a run. MLflow only.", False)
    base_model: str = setting("org/name of the fine-tuned model, for the model card.", "")
    datasets: Texts = setting("org/name of datasets, for the model card.", [])


@dataclass(frozen=True, kw_only=True)
class ReadChampion(StepRequest):
    """Say whether a training on other data or another base model could replace the export that an alias names."""

    is_asked_again: ClassVar[bool] = True

    export_uri: str = setting(_EXPORTS, place="uri")
    dataset_digest: str = setting("Digest of the prepared dataset, compared with that of the champion's.", "")
    model_digest: str = setting("Digest of the prepared base model. Empty: not compared.", "")
    always_train: bool = setting(
        "Retrain even if the champion is up to date, or the same training was kept out: `state` is then outdated.", False
    )
    warm_start: bool = setting("Whether a training is to start from its weights, if it has the same base model.", False)
    alias: str = setting(_ALIAS, "champion")
    training: Object = setting(
        "Settings of the training that is asked about: `state` is current if the same was trained, and not promoted in place of this "
        "champion. Not of code or a function, of which it is not known what they have become.",
        {},
    )


@dataclass(frozen=True, kw_only=True)
class RollBackModel(StepRequest):
    """Restore the previous export of an alias."""

    export_uri: str = setting(_EXPORTS, place="uri")
    alias: str = setting(_ALIAS, "champion")
    expected_digest: str = setting("Digest of the manifest that the alias must name now. Empty: whatever it names.", "")
    reason: str = setting("Recorded with the change.", "")


@dataclass(frozen=True, kw_only=True)
class RollBackOnce(RollBackModel):
    """As RollBackModel, once for each step."""

    is_asked_again: ClassVar[bool] = True

    step: str = setting("The step, which is recorded with the reason. Empty: it is not recorded, and rolls back each time.", "")


@dataclass(frozen=True, kw_only=True)
class RestoreForEvaluation(StepRequest):
    """Restore and verify an export in the workspace, for its evaluation."""

    uri: str = setting("The export.")
    digest: str = setting(_DIGEST)
    folder: str = setting("Folder in the workspace.")
    dataset_digest: str = setting("Another prepared dataset to evaluate on. Empty: that of the training.", "")


@dataclass(frozen=True, kw_only=True)
class CollectEvaluation(StepRequest):
    """Read what the job of an evaluation has written."""

    uri: str = setting("The export.")
    digest: str = setting(_DIGEST)
    folder: str = setting("Folder in the workspace.")
    written: str = setting("Name of the file with the result.")
    about: dict[str, Any] = setting("What is added to the result.")
    with_curve: bool = setting("Whether the result has the loss curve.", True)


@dataclass(frozen=True, kw_only=True)
class PlanTrials(StepRequest):
    """Choose the settings of each trial of a sweep."""

    settings: Object = setting("Settings of the builtin trainer for all trials.", {})
    trials: Items = setting('Settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}].', [])
    space: Object = setting(
        'Instead of trials: for each setting the list of its values, or a range as {"min": 1e-5, "max": 1e-3, "log": true}.', {}
    )
    max_trials: Count = setting("Maximum number of trials; 0: all combinations. Required for ranges.", 0)
    seed: int = setting("Seed of the random choice.", 0)
    metric: str = setting(
        "What the trials are to be compared by; for eval_loss, held-out rows are evaluated after each epoch.", ""
    )


@dataclass(frozen=True, kw_only=True)
class PickTrial(StepRequest):
    """Pick the trial whose training reported the best value."""

    outcomes: Items = setting("The output `outcome` of the training of each trial, whether it succeeded or not.")
    metric: str = setting("A reported metric, or a number in the results of the training function.", "eval_loss")
    greater_is_better: bool = setting("Whether a greater value is better.", False)


@dataclass(frozen=True, kw_only=True)
class BeginTrials(StepRequest):
    """Record the folders of the trials in the workspace."""

    count: Count = setting("Number of trials.")
    dataset_digest: str = setting("Digest of the prepared dataset.", "")
    model_digest: str = setting("Digest of the prepared model.", "")


@dataclass(frozen=True, kw_only=True)
class EndTrials(StepRequest):
    """Leave the folders of all trials but the best one to retention."""

    is_asked_again: ClassVar[bool] = True

    indices: list[int] = setting("Numbers of the trials.")


@dataclass(frozen=True, kw_only=True)
class RetireFolder(StepRequest):
    """Record that the run of a folder has ended, and delete folders of others beyond the retention."""

    is_asked_again: ClassVar[bool] = True

    folder: str = setting("The run's folder in the workspace.")
    retention: str = setting("always, or keep=N of the finished runs.", "always")
    live: list[str] | None = setting("Folders of the jobs that run; none if that is not known.", None)
