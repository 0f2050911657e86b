"""Plan the trials of a sweep."""

from typing import NamedTuple

from trainwright.components.step import step
from trainwright.steps.training.kfp_parameters import RUN


@step(needs=RUN)
def plan_trials(
    # Written by `make edges` from PlanTrials.
    settings: dict = {},
    trials: list = [],
    space: dict = {},
    max_trials: int = 0,
    seed: int = 0,
    metric: str = "",
    # End of what `make edges` writes.
    run: dict = {},
    run_id: str = "",
    workspace_path: str = "",
    dataset_digest: str = "",
    model_digest: str = "",
) -> NamedTuple("Outputs", [("trials", list[str]), ("count", int)]):
    """Choose the settings of each trial of a sweep: those given, all combinations, or some drawn at random.

    The plan depends on the inputs alone: a retry gives the same one, and so the same TrainJobs.

    Args:
        run: The run, as start_run returns it: its id, its workspace, and the settings of its trainer.
        run_id: Id of the run.
        settings: Settings of the builtin trainer for all trials.
        trials: Settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}].
        space: Instead of trials: for each setting the list of its values, or a range as {"min": 1e-5, "max": 1e-3, "log": true}.
        max_trials: Maximum number of trials; 0: all combinations. Required for ranges.
        seed: Seed of the random choice.
        metric: What the trials are to be compared by; for eval_loss, held-out rows are evaluated after each epoch.
        workspace_path: Where the workspace is mounted in this step. Empty: the folders of the trials are not recorded there, and
            retention keeps them.
        dataset_digest: Digest of the prepared dataset.
        model_digest: Digest of the prepared model.

    Returns:
        count: How many they are.
    """
    from pathlib import Path

    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.requests import BeginTrials, PlanTrials, StepRun
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.training.trials import plan_trials
    from trainwright.steps.workspace_steps import do_step

    parameters = {
        # Written by `make edges` from PlanTrials.
        "settings": settings,
        "trials": trials,
        "space": space,
        "max_trials": max_trials,
        "seed": seed,
        "metric": metric,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, needs_id=True, run_id=run_id, workspace_path=workspace_path)
        request = asked(PlanTrials, parameters, PlanTrials(settings=of_run.training.settings))
        planned = plan_trials(**request.by_name())
        for trial in planned:
            write_line(f"trial {trial.index}: {trial.settings}")
        if of_run.workspace_path:
            begun = BeginTrials(count=len(planned), dataset_digest=dataset_digest, model_digest=model_digest)
            do_step(Path(of_run.workspace_path), begun, StepRun("kfp", of_run.run_id))
    return [trial.model_dump_json() for trial in planned], len(planned)
