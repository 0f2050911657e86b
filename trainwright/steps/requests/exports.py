"""What the steps that deal with exported checkpoints are asked."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from trainwright.steps.requests.step_request import Count, Object, StepRequest, Texts, parameter

_EXPORTS = "Folder of all exports, as for the export of a checkpoint."
_DIGEST = "Digest of its manifest; any other content is rejected."
_ALIAS = "champion, challenger, or another name."


class ExportCheckpoint(StepRequest):
    """Copy a complete checkpoint of a run, the last or the best one, to a store."""

    export_uri: str = parameter(
        "file:///path or s3://bucket/prefix for exports; each run has its own folder below it.", example="s3://models/support"
    )
    trainjob: str = parameter("TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.", "")
    folder: str = parameter(
        "Folder of the training in the workspace, as the training returns it. Empty: that of the TrainJob.", ""
    )
    which: Literal["", "last", "best"] = parameter(
        "last, or best: the checkpoint with the best metric of the training (needs eval_strategy and --load_best_model_at_end, or "
        "--metric_for_best_model). Empty: best if the training loads the best at its end, else last.",
        "",
    )
    resumable: bool = parameter(
        "Whether to export optimizer and random states too, so that a training can resume from there.", True
    )
    supersede: bool = parameter("Whether to publish also if the run has another export of this step with other files.", False)
    best_metric: str = parameter("Logged metric that chooses the run's best export, which best.json names.", "eval_loss")
    greater_is_better: bool = parameter("Whether a greater best_metric is better.", False)
    usage: Object = parameter("What the training used, as its step returns it, for the card.", {})
    merge_adapter: bool = parameter(
        "Whether to export also the model that results from merging the adapter into its base model, beside the adapter's exports.",
        False,
    )


class ExportBeside(ExportCheckpoint):
    """As ExportCheckpoint while the training goes on; nothing is exported as long as there is no complete checkpoint."""

    is_asked_again: ClassVar[bool] = True

    look: int = parameter("Makes each call unique.")


class EvaluateExport(StepRequest):
    """Measure the loss of an export and of its base model."""

    checkpoint_uri: str = parameter("URI of the exported checkpoint.")
    checkpoint_digest: str = parameter(_DIGEST)
    runtime: str = parameter("Training runtime of the evaluation.", "causal-lm-evaluation")
    sample_row: Count = parameter("Row (from 0) whose prompt is completed before and after fine-tuning.", 0)
    max_rows: Count = parameter("Evaluate only the first rows; 0 evaluates all held-out rows.", 0)
    dataset_digest: str = parameter(
        "Digest of another prepared dataset in the workspace to evaluate on, so that models are compared on the same rows. "
        "Empty: that of the training.",
        "",
    )
    tasks: Texts = parameter(
        "Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact matches on held-out rows. "
        "See docs/tools.md.",
        [],
        example='["arc_easy", "held_out"]',
    )
    few_shot: Annotated[int, Field(ge=-1)] = parameter("Examples in each prompt of a task; -1: as the task says.", -1)
    task_limit: Count = parameter("Maximum number of examples of each task; 0: all.", 0)
    retention: str = parameter("Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.", "always")


class PromoteModel(StepRequest):
    """Let an alias name an export if it is better than what the alias names now."""

    is_asked_again: ClassVar[bool] = True

    export_uri: str = parameter(_EXPORTS)
    checkpoint_uri: str = parameter("Export to promote.")
    checkpoint_digest: str = parameter(_DIGEST)
    evaluation: Object = parameter("Figures of the export, as its evaluation returns them.", {})
    champion_evaluation: Object = parameter(
        "Figures of the champion on the same data. Empty: those recorded at its promotion, if of the same data.", {}
    )
    champion_digest: str = parameter("Digest of the export that champion_evaluation is of.", "")
    rule: Literal["better", "always"] = parameter("better, or always to promote without comparison.", "better")
    metric: str = parameter("Figure to compare.", "loss")
    greater_is_better: bool = parameter("Whether a greater metric is better.", False)
    margin: Annotated[float, Field(ge=0)] = parameter("By how much it must be better.", 0.0)
    allow_trained_rows: bool = parameter(
        "Whether a figure of held-out rows counts if 5 % of these rows, or more, are trained on, too.", False
    )
    alias: str = parameter(_ALIAS, "champion")
    training: Object = parameter(
        "Settings that the export was trained with: if it is not promoted, they are remembered, so that ReadChampion finds no need "
        "to train the same again.",
        {},
    )


class RegisterModel(StepRequest):
    """Register an export in a registry of models."""

    checkpoint_uri: str = parameter("Export to register.")
    checkpoint_digest: str = parameter(_DIGEST)
    registry: str = parameter(
        "hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.", example="mlflow://support"
    )
    name: str = parameter("The model, if registry does not name it.", "")
    version: str = parameter("Name of the version; a tag in the Hub. Not for MLflow.", "")
    alias: str = parameter("Tag (Hub) or alias (MLflow) that is moved to the version, last.", "")
    with_training_state: bool = parameter("Whether to upload optimizer and random states too. Hub only.", False)
    log_run: bool = parameter("Whether to log the training metrics as a run. MLflow only.", False)
    base_model: str = parameter("org/name of the fine-tuned model, for the model card.", "")
    datasets: Texts = parameter("org/name of datasets, for the model card.", [])


class ReadChampion(StepRequest):
    """Say whether a training on other data or another base model could replace the export that an alias names."""

    is_asked_again: ClassVar[bool] = True

    export_uri: str = parameter(_EXPORTS)
    dataset_digest: str = parameter("Digest of the prepared dataset, compared with that of the champion's.", "")
    model_digest: str = parameter("Digest of the prepared base model. Empty: not compared.", "")
    always_train: bool = parameter(
        "Retrain even if the champion is up to date, or the same training was kept out: `state` is then outdated.", False
    )
    warm_start: bool = parameter("Whether a training is to start from its weights, if it has the same base model.", False)
    alias: str = parameter(_ALIAS, "champion")
    training: Object = parameter(
        "Settings of the training that is asked about: `state` is current if the same was trained, and not promoted in place of this "
        "champion. Not of code or a function, of which it is not known what they have become.",
        {},
    )


class RollBackModel(StepRequest):
    """Restore the previous export of an alias."""

    export_uri: str = parameter(_EXPORTS)
    alias: str = parameter(_ALIAS, "champion")
    expected_digest: str = parameter("Digest of the manifest that the alias must name now. Empty: whatever it names.", "")
    reason: str = parameter("Recorded with the change.", "")


class RollBackOnce(RollBackModel):
    """As RollBackModel, once for each step."""

    is_asked_again: ClassVar[bool] = True

    step: str = parameter("The step, which is recorded with the reason. Empty: it is not recorded, and rolls back each time.", "")


class RestoreForEvaluation(StepRequest):
    """Restore and verify an export in the workspace, for its evaluation."""

    uri: str = parameter("The export.")
    digest: str = parameter(_DIGEST)
    folder: str = parameter("Folder in the workspace.")
    dataset_digest: str = parameter("Another prepared dataset to evaluate on. Empty: that of the training.", "")


class CollectEvaluation(StepRequest):
    """Read what the job of an evaluation has written."""

    uri: str = parameter("The export.")
    digest: str = parameter(_DIGEST)
    folder: str = parameter("Folder in the workspace.")
    written: str = parameter("Name of the file with the result.")
    about: dict[str, Any] = parameter("What is added to the result.")
    with_curve: bool = parameter("Whether the result has the loss curve.", True)
