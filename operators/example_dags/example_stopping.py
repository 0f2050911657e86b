"""Stop jobs, and go on: suspend keeps job and checkpoints and frees the GPUs, delete removes it, clean up ends what a run left.

A job is found by its name, or all jobs of a run by its id. Each task waits until the pods have ended.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.operators import (
    CleanUpOperator,
    DeleteTrainJobOperator,
    ResumeTrainJobOperator,
    SuspendTrainJobOperator,
    TrainJobOperator,
)

JOB = {"trainjob": "{{ ti.xcom_pull('submit')['trainjob'] }}"}

with DAG("example_stopping", schedule=None, catchup=False, tags=["trainwright", "example"]) as dag:
    submit = TrainJobOperator(
        task_id="submit",
        runtime="torch-distributed",
        command=["python", "-c", "import time; time.sleep(600)"],
        num_nodes=1,
        num_proc_per_node=1,
        wait_for_completion=False,
    )
    suspend = SuspendTrainJobOperator(task_id="suspend", **JOB)
    resume = ResumeTrainJobOperator(task_id="resume", **JOB)
    delete = DeleteTrainJobOperator(task_id="delete", **JOB)
    clean = CleanUpOperator(task_id="clean", trigger_rule="all_done", on_failure="suspend")
    submit >> suspend >> resume >> delete >> clean
