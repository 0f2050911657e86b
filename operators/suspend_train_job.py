"""Suspend TrainJobs: their pods end, their checkpoints stay."""

from __future__ import annotations

from trainwright.operators.change_jobs import StopJobsOperator


class SuspendTrainJobOperator(StopJobsOperator):
    """Suspend the TrainJob with a name, or the unfinished ones of a run of this DAG, and wait until their pods have ended.

    A job that is suspended already, has ended or is gone is no error. A suspended job resumes with ResumeTrainJobOperator, and when
    its task is retried. A job that waits in its queue stays there: only deleting it prevents that it starts.

    :param trainjob: name of the TrainJob, as TrainJobOperator returns it.
    :param run_id: without trainjob, the id of a run of this DAG, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the TrainJobs; defaults to the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param pod_timeout_seconds: maximum seconds to wait for the pods to end; the task fails after that, and a retry waits again.
        0: do not wait.
    :return: the jobs, each with name, namespace, and what was done with it (outcome).
    """

    change = "suspend"
