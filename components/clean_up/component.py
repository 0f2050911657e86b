"""Stop what a run has left running. The exit handler of the pipelines: it runs after the end of a run, also after its termination."""

from kfp import dsl

from trainwright.components.step import step


@step
def clean_up(
    status: dsl.PipelineTaskFinalStatus,
    run_id: str = "",
    pipeline_run_id: str = "",
    on_failure: str = "",
    namespace: str = "",
    submission_mode: str = "",
    training: dict = {},
) -> list:
    """Suspend or delete every unfinished TrainJob of a run, unless the run has succeeded.

    A step has less than a second between the signal of a termination and its end, so its own attempt to suspend the job may be
    lost. Jobs are found by the run's id, and by the workflow of this step. Running the run again resumes suspended jobs.

    Args:
        status: Set by Kubeflow Pipelines.
        run_id: Id of the run, as for the other components. Empty: pipeline_run_id.
        pipeline_run_id: dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        on_failure: suspend, delete or keep: what to do with the jobs. Empty: suspend.
        namespace: Namespace of the TrainJobs. Empty: that of the credentials.
        submission_mode: auto, trainjob or jobset. Empty: TRAINWRIGHT_SUBMISSION_MODE, else auto, which depends on the cluster.
        training: Settings of the training by name, as for start_run: its run_id, namespace, submission_mode and
            `on_cancel` of `ending` hold where the parameters are not set.

    Returns:
        The jobs, each with name, namespace, submitter, phase, and what was done with it.
    """
    from dataclasses import asdict

    from trainwright.api import names
    from trainwright.jobs import TrainJobError
    from trainwright.jobs.state.cancel import CancelPolicy
    from trainwright.jobs.state.run_folder import label_value
    from trainwright.steps.ends.clean import LeftJobs, clean, left_jobs
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.training.kfp_parameters import place_of
    from trainwright.steps.training.own_step import own_step
    from trainwright.submission import connect_for_jobs

    with explained_end():
        place, of_training = place_of(training)
        policy = CancelPolicy(on_failure or of_training.on_cancel)
        run_id, namespace = run_id or place.run_id, namespace or place.namespace
        submission_mode = submission_mode or place.submission_mode
        # The run has waited for its jobs, or they are to be kept.
        if status.state == "SUCCEEDED" or policy is CancelPolicy.keep:
            write_line(f"the run has ended {status.state}: nothing to clean up")
            return []
        cluster = connect_for_jobs(mode=submission_mode)
        own = own_step(cluster)
        workflow = own.workflow.name if own.workflow is not None else ""
        labels = {names.PIPELINE_RUN_LABEL: label_value(own.run_instance)} if own.run_instance else {}
        left = LeftJobs(run=run_id or pipeline_run_id, owner="kfp", workflow=workflow, labels=labels)
        if not left.run and not left.workflow:
            raise ValueError("run_id: set run_id, or pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER")
        cleaned = []
        for job in clean(cluster, left_jobs(cluster, namespace or cluster.default_namespace, left), policy):
            write_line(f"TrainJob {job.namespace}/{job.name} of {job.submitter} was {job.phase.value}: {job.outcome}")
            cleaned.append(asdict(job))
        if not cleaned:
            write_line(f"no job of the run {left.run or left.workflow} is left running")
        if failed := [job["name"] for job in cleaned if job["failed"]]:
            raise TrainJobError(f"TrainJobs that may still be running: {', '.join(failed)}; see the log of this step")
    return cleaned
