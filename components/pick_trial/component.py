"""Pick the best trial of a sweep."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step
from trainwright.steps.training.kfp_parameters import RUN


@step(needs=RUN)
def pick_trial(
    summary: dsl.Output[dsl.Markdown],
    # Written by `make edges` from PickTrial.
    outcomes: list,
    metric: str = "eval_loss",
    greater_is_better: bool = False,
    # End of what `make edges` writes.
    run: dict = {},
    run_id: str = "",
    workspace_path: str = "",
) -> NamedTuple("Outputs", [("index", int), ("trainjob", str), ("value", float), ("settings", dict)]):
    """Pick the trial whose training reported the best value. Failed trials are only listed, unless all have failed.

    Args:
        run: The run, as start_run returns it: its id and its workspace.
        run_id: Id of the run.
        outcomes: The output `outcome` of the training of each trial, whether it succeeded or not.
        metric: A reported metric, or a number in the results of the training function.
        greater_is_better: Whether a greater value is better.
        summary: All trials, best first, as Markdown.
        workspace_path: Where the workspace is mounted in this step: the folders of the other trials are then left to retention.

    Returns:
        index: Number of the trial, for trial_index of export_checkpoint and evaluate.
        trainjob: Its TrainJob.
        value: Its value of the metric.
        settings: Its settings.
    """
    from pathlib import Path

    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.requests import EndTrials, PickTrial, StepRun
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.training.trials import pick_trial
    from trainwright.steps.workspace_steps import do_step

    parameters = {
        # Written by `make edges` from PickTrial.
        "outcomes": outcomes,
        "metric": metric,
        "greater_is_better": greater_is_better,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, needs_id=True, run_id=run_id, workspace_path=workspace_path)
        picked = pick_trial(asked(PickTrial, parameters))
        if of_run.workspace_path:
            do_step(Path(of_run.workspace_path), EndTrials(indices=picked.others), StepRun("kfp", of_run.run_id))
    Path(summary.path).write_text(picked.summary, "utf-8")
    write_line(picked.line)
    return picked.best.index, picked.best.trainjob, picked.value, picked.best.settings
