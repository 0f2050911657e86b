"""What the steps of a sweep are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainwright.jobs.request.setting import setting
from trainwright.jobs.request.setting_types import Count, Items, Object
from trainwright.steps.requests.step_request import StepRequest


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
