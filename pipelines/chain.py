"""The steps that the pipelines share: prepare dataset and model, train, export the checkpoint, evaluate, promote and register.

The first step checks the settings of all others and sorts them; the others get theirs as its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kfp import dsl

from trainwright.components import (
    evaluate,
    export_checkpoint,
    initialize_dataset,
    initialize_model,
    promote_model,
    register_model,
    start_run,
    train,
)
from trainwright.steps.parameter_tables import STEP_PARAMETERS


class Run:
    """The first task of a run, and its outputs."""

    def __init__(self, form: Mapping[str, Any], **given: Any):
        fields = {name: form[name] for name in STEP_PARAMETERS["StartRun"] if name in form}
        self.task = start_run(pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **fields, **given)
        self.id, self.claim, self.path = (self.task.outputs[name] for name in ("run_id", "claim", "workspace_path"))
        self.workspace = self.task.outputs["workspace"]
        self.where = {name: self.task.outputs[name] for name in ("namespace", "submission_mode")}
        self.ties = {"tie_to_run": self.task.outputs["tie_to_run"]}

    def more(self, step: str) -> Any:
        """The settings of a step."""
        return self.task.outputs[step]


class Inputs(NamedTuple):
    """The tasks that have prepared the dataset and the model, and what the training is told about them."""

    dataset: Any
    model: Any
    for_training: dict[str, Any]


def prepare(run: Run, dataset_uri: Any, model_uri: Any) -> Inputs:
    """Prepare dataset and model in the workspace."""
    place = {"workspace_path": run.path, "run_id": run.id}
    dataset = initialize_dataset(dataset_uri=dataset_uri, model_uri=model_uri, more=run.more("data"), **place)
    model = initialize_model(model_uri=model_uri, workspace_path=run.path, run_id=run.id)
    found = {"dataset_digest": dataset.outputs["digest"], "model_digest": model.outputs["digest"]}
    found["model_shape"] = model.outputs["shape"]
    return Inputs(dataset, model, {"dataset_uri": dataset_uri, "model_uri": model_uri, **found})


def train_on(run: Run, inputs: Inputs, form: Mapping[str, Any], *, exports: bool = True, **given: Any) -> Any:
    """Train on what was prepared. With `exports`, a run that begins anew resumes from its last export."""
    if exports:
        given["export_uri"] = form["export_uri"]
    return train(
        run_id=run.id,
        workspace=run.workspace,
        store_secret=form["store_secret"],
        hub_secret=form["hub_secret"],
        more=run.more("training"),
        **inputs.for_training,
        **run.where,
        **run.ties,
        **given,
    )


def export(run: Run, inputs: Inputs, trained: Any, form: Mapping[str, Any]) -> Any:
    """Export the checkpoint that a training has written to its folder."""
    return export_of(run, inputs, form, **{name: trained.outputs[name] for name in ("trainjob", "folder", "usage")})


def export_of(run: Run, inputs: Inputs, form: Mapping[str, Any], **given: Any) -> Any:
    """Export a checkpoint, with edges from what it was trained on; `given` says of which training."""
    place = {"export_uri": form["export_uri"], "workspace_path": run.path}
    lineage = {"dataset": inputs.dataset.outputs["dataset"], "base_model": inputs.model.outputs["model"]}
    return export_checkpoint(run_id=run.id, more=run.more("export"), **place, **lineage, **given)


def evaluate_in(run: Run, checkpoint: Any, form: Mapping[str, Any], **given: Any) -> Any:
    """Evaluate the export that a task names in its outputs `uri` and `digest`."""
    return evaluate(
        run_id=run.id,
        checkpoint_uri=checkpoint.outputs["uri"],
        checkpoint_digest=checkpoint.outputs["digest"],
        workspace=run.workspace,
        workspace_path=run.path,
        hub_secret=form["hub_secret"],
        more=run.more("evaluation"),
        **run.where,
        **run.ties,
        **given,
    )


def promote_in(run: Run, exported: Any, evaluation: Any, form: Mapping[str, Any], **given: Any) -> Any:
    """Promote an export by its evaluation."""
    return promote_model(
        export_uri=form["export_uri"],
        checkpoint_uri=exported.outputs["uri"],
        checkpoint_digest=exported.outputs["digest"],
        evaluation=evaluation.outputs["evaluation"],
        rule=form["promote"],
        more=run.more("promotion"),
        **given,
    )


def register_in(run: Run, exported: Any, evaluation: Any, form: Mapping[str, Any], **given: Any) -> Any:
    """Register an export, after its evaluation."""
    registration = register_model(
        checkpoint_uri=exported.outputs["uri"],
        checkpoint_digest=exported.outputs["digest"],
        registry=form["registry"],
        more=run.more("registration"),
        **given,
    )
    return registration.after(evaluation)
