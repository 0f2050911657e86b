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

    from trainwright.api.markdown_text import code, escaped, table
    from trainwright.steps.step_end import explained_end, write_line
    from trainwright.steps.trials import TrialOutcome, end_trials, rank_trials, trial_rows

    found = sorted((TrialOutcome.model_validate(one) for one in outcomes), key=lambda one: one.index)
    with explained_end():
        ranked = rank_trials(found, metric, greater_is_better=greater_is_better)
        best = ranked[0]
        if workspace_path:
            end_trials(Path(workspace_path), found, run_id=run_id, best=best)
    rows = [
        (rank, number, code(name), escaped(value), code(given))
        for rank, number, name, value, given in trial_rows(found, ranked, metric)
    ]
    Path(summary.path).write_text(
        f"## Trials\n\n{table(('rank', 'trial', 'TrainJob', escaped(metric), 'settings'), rows)}\n", "utf-8"
    )
    write_line(
        f"best: trial {best.index} with {metric} {best.metrics[metric]:.6g}, of {len(found)} trials, {len(ranked)} of them comparable"
    )
    return best.index, best.trainjob, best.metrics[metric], best.settings
