"""Train: a function, any command, and a job that another task waits for.

`@task.trainjob` sends the source of a function to every node; its result is the task's XCom. `TrainJobOperator` runs anything else: a
command, a folder of code, a builtin trainer, a manifest. With `wait_for_completion=False` it returns at once, and `TrainJobSensor`
waits for the job: in the worker, or with `deferrable=True` in the triggerer, so that no worker is held.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task

from trainwright.operators import TrainJobOperator, TrainJobSensor

ON_CPU = {"runtime": "torch-distributed", "num_nodes": 1, "num_proc_per_node": 1, "resources_per_node": {"cpu": "500m"}}

with DAG("example_training", schedule=None, catchup=False, tags=["trainwright", "example"]) as dag:

    @task.trainjob(num_nodes=2, num_proc_per_node=1, retries=1, execution_timeout=timedelta(hours=1))
    def fit(steps: int) -> dict[str, int]:
        """Runs on every node; that of rank 0 is the result."""
        import os

        print(f"loss={1 / steps}")
        return {"nodes": int(os.environ["WORLD_SIZE"]), "steps": steps}

    submitted = TrainJobOperator(
        task_id="submit", command=["python", "-c", "print('trained')"], wait_for_completion=False, **ON_CPU
    )
    waited = TrainJobSensor(task_id="wait", trainjob=submitted.output, timeout=3600, deferrable=False)
    fit(3) >> submitted >> waited
