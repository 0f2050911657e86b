"""Pick the best trial of a sweep."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def pick_trial(
    run_id: str,
    outcomes: list,
    summary: dsl.Output[dsl.Markdown],
    metric: str = "eval_loss",
    greater_is_better: bool = False,
    workspace_path: str = "",
) -> NamedTuple("Outputs", [("index", int), ("trainjob", str), ("value", float), ("settings", dict)]):
    """Pick the trial whose training reported the best value. Failed trials are only listed, unless all have failed.

    Args:
        run_id: Id of the run.
        outcomes: The output `outcome` of train for each trial: dsl.Collected(training.outputs["outcome"]).
        summary: All trials, best first, as Markdown.
        metric: A reported metric, or a number in the results of the training function.
        greater_is_better: Whether a greater value is better.
        workspace_path: Where the workspace is mounted in this step: the folders of the other trials are then left to retention.

    Returns:
        index: Number of the trial, for trial_index of export_checkpoint and evaluate.
        trainjob: Its TrainJob.
        value: Its value of the metric.
        settings: Its settings.
    """
    from pathlib import Path

    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.steps.trials import TrialOutcome, best_trial_line, end_trials, rank_trials, trials_summary

    found = sorted((TrialOutcome.model_validate(one) for one in outcomes), key=lambda one: one.index)
    with explained_end():
        ranked = rank_trials(found, metric, greater_is_better=greater_is_better)
        best = ranked[0]
        if workspace_path:
            end_trials(Path(workspace_path), [one.index for one in found if one is not best], run_id=run_id)
    Path(summary.path).write_text(trials_summary(found, ranked, metric), "utf-8")
    write_line(best_trial_line(found, ranked, metric))
    return best.index, best.trainjob, best.metrics[metric], best.settings
