"""Try several settings: one TrainJob for each trial, only so many at once, hopeless ones stopped early, and the best one picked.

`PlanTrialsOperator` chooses the settings, `TrainTrialOperator` is mapped over them, `StopHopelessTrialsOperator` watches the metrics
that the TrainJobs report, and `PickTrialOperator` returns the best trial, although others have failed.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.operators import PickTrialOperator, PlanTrialsOperator, StopHopelessTrialsOperator, TrainTrialOperator

with DAG(
    "example_sweep", schedule=None, catchup=False, render_template_as_native_obj=True, tags=["trainwright", "example"]
) as dag:
    plan = PlanTrialsOperator(task_id="plan", space={"learning_rate": [1e-4, 2e-4], "lora_rank": [8, 16]}, metric="eval_loss")
    train = TrainTrialOperator.partial(
        task_id="train",
        dataset_uri="s3://data/support.jsonl",
        model_uri="hf://Qwen/Qwen3-0.6B",
        workspace="pvc://training",
        resources_per_node={"nvidia.com/gpu": 1},
        conn_id="cluster",
        store_conn_id="s3",
        max_active_tis_per_dagrun=2,
    ).expand(trial=plan.output)
    stop = StopHopelessTrialsOperator(task_id="stop", trials_task_id="train", conn_id="cluster")
    pick = PickTrialOperator(
        task_id="pick", trigger_rule="all_done", trials=plan.output, outcomes="{{ ti.xcom_pull('train', key='outcome') }}"
    )
    plan >> stop
    [train, stop] >> pick
