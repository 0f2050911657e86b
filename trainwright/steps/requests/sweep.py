"""What the steps of a sweep are asked."""

from __future__ import annotations

from typing import ClassVar

from trainwright.steps.requests.step_request import Count, Items, Object, StepRequest, parameter


class PlanTrials(StepRequest):
    """Choose the settings of each trial of a sweep."""

    settings: Object = parameter("Settings of the builtin trainer for all trials.", {})
    trials: Items = parameter('Settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}].', [])
    space: Object = parameter(
        'Instead of trials: for each setting the list of its values, or a range as {"min": 1e-5, "max": 1e-3, "log": true}.', {}
    )
    max_trials: Count = parameter("Maximum number of trials; 0: all combinations. Required for ranges.", 0)
    seed: int = parameter("Seed of the random choice.", 0)
    metric: str = parameter(
        "What the trials are to be compared by; for eval_loss, held-out rows are evaluated after each epoch.", ""
    )


class PickTrial(StepRequest):
    """Pick the trial whose training reported the best value."""

    outcomes: Items = parameter("The output `outcome` of the training of each trial, whether it succeeded or not.")
    metric: str = parameter("A reported metric, or a number in the results of the training function.", "eval_loss")
    greater_is_better: bool = parameter("Whether a greater value is better.", False)


class BeginTrials(StepRequest):
    """Record the folders of the trials in the workspace."""

    count: Count = parameter("Number of trials.")
    dataset_digest: str = parameter("Digest of the prepared dataset.", "")
    model_digest: str = parameter("Digest of the prepared model.", "")


class EndTrials(StepRequest):
    """Leave the folders of all trials but the best one to retention."""

    is_asked_again: ClassVar[bool] = True

    indices: list[int] = parameter("Numbers of the trials.")
