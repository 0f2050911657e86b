"""Resume suspended TrainJobs."""

from __future__ import annotations

from trainwright.operators.change_jobs import ChangeJobsOperator


class ResumeTrainJobOperator(ChangeJobsOperator):
    """Resume the TrainJob with a name, or the suspended ones of a run of this DAG, whoever has suspended them.

    A job that is not suspended, has ended or is gone is no error. A job that waits in its queue is left to the queue. One that a
    cleared task has superseded is not resumed, since two jobs would write to one folder: by its name it is an error without retries.
    The task does not wait for the job, and the job may run without a task that waits for it.

    :param trainjob: name of the TrainJob, as TrainJobOperator returns it.
    :param run_id: without trainjob, the id of a run of this DAG, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of the TrainJobs; defaults to the connection's.
    :param submission_mode: auto, trainjob or jobset; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :return: the jobs, each with name, namespace, and what was done with it (outcome).
    """

    change = "resume"
