"""Wait until a TrainJob that submit_train_job has submitted ends."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step
from trainwright.jobs.request.train_request import TrainRequest


@step(settings=TrainRequest)
def wait_train_job(
    trainjob: str,
    metrics: dsl.Output[dsl.Metrics],
    # Written by `make edges` from TrainRequest.
    limits: dict = {},
    ending: dict = {},
    logging: dict = {},
    # End of what `make edges` writes.
) -> NamedTuple("Outputs", [("trainjob", str), ("namespace", str), ("folder", str), ("results", dict)]):
    """Wait until a TrainJob has succeeded, with its progress and log in the log of this step.

    A retry goes on waiting, and resumes the job if the cancellation of an earlier try has suspended it. A preempted job fails, since
    only `train` can submit its next attempt.

    Args:
        trainjob: Handle of the job, from submit_train_job.
        limits: When a job has failed, and how often it may begin again: deadlines, stuck and diverged jobs, restarts, budgets. Its
            settings: queue_timeout_seconds, start_timeout_seconds, run_timeout_seconds, lost_node_timeout_seconds, fail_if_stuck,
            fail_on_divergence, restarts, preemption_budget, job_retries.
        ending: What happens to jobs at a cancellation, without a waiting step, and when the step is repeated. Its settings:
            on_cancel, waiter_lease_seconds, adopt_finished, on_changed_request, previous_jobs, tie_to_run.
        logging: Which logs of the job are shown. Its settings: logs, log_bytes.
        metrics: Last values reported by the training, and the numbers that it returned.

    Returns:
        trainjob: Name of the TrainJob.
        namespace: Its namespace.
        folder: The run's folder in the workspace, such as runs/RUN; empty without a workspace.
        results: Return value of the function, or content of results.json; a value that is not an object is under "value".
    """
    from trainwright.jobs import EventPrinter, TrainRequest
    from trainwright.jobs.request.typed_parameters import typed_parameters
    from trainwright.jobs.wait.run_step import JobHandle, wait_step
    from trainwright.jobs.wait.waiting import of_waiting
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.training.kfp_outputs import log_metrics
    from trainwright.steps.training.own_step import own_step, warn_without_guard
    from trainwright.steps.training.submit import with_step_lease
    from trainwright.submission import connect_for_jobs

    parameters = {
        # Written by `make edges` from TrainRequest.
        "limits": limits,
        "ending": ending,
        "logging": logging,
        # End of what `make edges` writes.
    }
    with explained_end():
        handle = JobHandle.parse(trainjob)
        options = with_step_lease(of_waiting(TrainRequest.parse(typed_parameters(TrainRequest, parameters))))
        cluster = connect_for_jobs(mode=handle.mode)
        if options.ending.on_cancel != "keep":
            warn_without_guard(cluster, handle.namespace)
        waiting_pod = own_step(cluster).waiting_pod
        result = wait_step(cluster, handle, options, event_printer=EventPrinter(write_line), waiting_pod=waiting_pod)
    log_metrics(metrics, result.metrics, result.results)
    return result.trainjob, result.namespace, result.folder, result.results_as_object()
