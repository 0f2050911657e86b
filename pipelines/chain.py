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
from trainwright.jobs.request.setting import names_of
from trainwright.steps.requests import StartRun


class Run:
    """The first task of a run, and its outputs."""

    def __init__(self, form: Mapping[str, Any], **given: Any):
        fields = {name: form[name] for name in sorted(names_of(StartRun)) if name in form}
        self.task = start_run(pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **fields, **given)
        self.claim, self.path = self.task.outputs["claim"], self.task.outputs["workspace_path"]
        self.given = {"run": self.task.outputs["run"]}
        """The parameter of each step for the run."""


class Inputs(NamedTuple):
    """The tasks that have prepared the dataset and the model."""

    dataset: Any
    model: Any


def prepare(run: Run, dataset_uri: Any, model_uri: Any) -> Inputs:
    """Prepare dataset and model in the workspace."""
    dataset = initialize_dataset(dataset_uri=dataset_uri, model_uri=model_uri, **run.given)
    return Inputs(dataset, initialize_model(model_uri=model_uri, **run.given))


def train_on(run: Run, inputs: Inputs, form: Mapping[str, Any], *, exports: bool = True, **given: Any) -> Any:
    """Train on what was prepared. With `exports`, a run that begins anew resumes from its last export."""
    if exports:
        given["export_uri"] = form["export_uri"]
    return train(dataset=inputs.dataset.outputs["dataset"], model=inputs.model.outputs["model"], **run.given, **given)


def export(run: Run, inputs: Inputs, trained: Any, form: Mapping[str, Any]) -> Any:
    """Export the checkpoint that a training has written to its folder."""
    return export_of(run, inputs, form, **{name: trained.outputs[name] for name in ("trainjob", "folder", "usage")})


def export_of(run: Run, inputs: Inputs, form: Mapping[str, Any], **given: Any) -> Any:
    """Export a checkpoint, with edges from what it was trained on; `given` says of which training."""
    lineage = {"dataset": inputs.dataset.outputs["dataset"], "base_model": inputs.model.outputs["model"]}
    return export_checkpoint(export_uri=form["export_uri"], **run.given, **lineage, **given)


def evaluate_in(run: Run, checkpoint: Any, **given: Any) -> Any:
    """Evaluate the export that a task names in its outputs `uri` and `digest`."""
    named = {"checkpoint_uri": checkpoint.outputs["uri"], "checkpoint_digest": checkpoint.outputs["digest"]}
    return evaluate(**named, **run.given, **given)


def promote_in(run: Run, exported: Any, evaluation: Any, form: Mapping[str, Any], **given: Any) -> Any:
    """Promote an export by its evaluation."""
    return promote_model(
        export_uri=form["export_uri"],
        checkpoint_uri=exported.outputs["uri"],
        checkpoint_digest=exported.outputs["digest"],
        evaluation=evaluation.outputs["evaluation"],
        rule=form["promote"],
        **run.given,
        **given,
    )


def register_in(run: Run, exported: Any, evaluation: Any, form: Mapping[str, Any], **given: Any) -> Any:
    """Register an export, after its evaluation."""
    registration = register_model(
        checkpoint_uri=exported.outputs["uri"],
        checkpoint_digest=exported.outputs["digest"],
        registry=form["registry"],
        **run.given,
        **given,
    )
    return registration.after(evaluation)
