"""The exit handler of a pipeline that trains: it stops what the run has left running, where the cluster is quiet enough to run it."""

from __future__ import annotations

from typing import Any

from kfp import dsl

from trainwright.components.clean_up import clean_up


def trainwright_exit_handler(
    *,
    run_id: Any = "",
    on_failure: Any = "",
    namespace: Any = "",
    submission_mode: Any = "",
    training: Any = None,
    name: str = "training",
) -> dsl.ExitHandler:
    """Return the exit handler for the steps of a pipeline: `with trainwright_exit_handler(): train(...)`.

    The component `clean_up` runs after the block, and unless the run has succeeded suspends or deletes its unfinished TrainJobs. After
    a termination on a busy cluster it may not run: Argo fails its nodes while they are pending. `trainwright guard` does it then.
    In a pipeline, the block is at its top level.

    Args:
        run_id: Id of the run, if the steps have another than that of the pipeline's run.
        on_failure: suspend, delete or keep: what to do with the jobs. Empty: suspend.
        namespace: Namespace of the TrainJobs. Empty: that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto.
        training: Settings of the training by name, as for start_run: its run_id, namespace, submission_mode and
            `on_cancel` of `ending` hold, too.
        name: Name of the block on the run's page.
    """
    cleaning = clean_up(
        run_id=run_id,
        pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        on_failure=on_failure,
        namespace=namespace,
        submission_mode=submission_mode,
        training=training if training is not None else {},
    )
    cleaning.set_caching_options(False)
    return dsl.ExitHandler(cleaning, name=name)
