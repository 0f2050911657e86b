"""Delete TrainJobs with everything that they own."""

from __future__ import annotations

from trainwright.operators.change_jobs import StopJobsOperator


class DeleteTrainJobOperator(StopJobsOperator):
    """Delete the TrainJob with a name, or all of a run of this DAG, also those that have ended, and wait until their pods have ended.

    A job that is gone is no error. Everything that a job owns is deleted with it: its pods, its logs, and a workspace with
    retain=delete. Checkpoints on any other workspace stay. A task that is retried after that submits a new job.

    :param trainjob: name of the TrainJob, as TrainJobOperator returns it.
    :param run_id: without trainjob, the id of a run of this DAG, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the TrainJobs; defaults to the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param pod_timeout_seconds: maximum seconds to wait for the pods to end; the task fails after that, and a retry waits again.
        0: do not wait.
    :return: the jobs, each with name, namespace, and what was done with it (outcome).
    """

    change = "delete"
