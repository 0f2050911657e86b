"""Fine-tune step by step: prepare data and a model, train, export, evaluate, and end the run.

`StartRunOperator` names the run and creates the claim that all tasks share; what `training`, `data` and `evaluation` say is checked
here, and the result is the parameter `run` of all other tasks. A worker that mounts the claim moves the files itself; otherwise pods
do. `finetune(...)` creates the same tasks as a group.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.operators import (
    EvaluateOperator,
    ExportCheckpointOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    Limits,
    Placement,
    PreprocessDatasetOperator,
    PullDvcDataOperator,
    RetireRunOperator,
    StartRunOperator,
    TrainJobOperator,
)

MODEL, EXPORTS = "hf://Qwen/Qwen3-0.6B", "s3://models/support"

with DAG(
    "example_fine_tuning",
    schedule=None,
    catchup=False,
    render_template_as_native_obj=True,
    tags=["trainwright", "example"],
) as dag:
    start = StartRunOperator(
        task_id="start", workspace="pvc://training?size=50Gi", epochs=3, data={"layout": "messages"}, conn_id="cluster"
    )
    every = {"run": start.output, "store_conn_id": "s3", "conn_id": "cluster"}
    pull = PullDvcDataOperator(task_id="pull", source="s3://data/support", **every)
    preprocess = PreprocessDatasetOperator(
        task_id="preprocess", data_uri="{{ ti.xcom_pull('pull')['data_uri'] }}", deduplicate=True, min_chars=20, **every
    )
    rows = "{{ ti.xcom_pull('preprocess')['data_uri'] }}"
    dataset = InitializeDatasetOperator(task_id="dataset", dataset_uri=rows, **every)
    model = InitializeModelOperator(task_id="model", model_uri=MODEL, hub_conn_id="hub", **every)
    train = TrainJobOperator(
        task_id="train",
        dataset_uri=rows,
        dataset_digest="{{ ti.xcom_pull('dataset')['digest'] }}",
        model_uri=MODEL,
        model_digest="{{ ti.xcom_pull('model')['digest'] }}",
        data={"model_shape": "{{ ti.xcom_pull('model')['shape'] | tojson }}"},
        export_uri=EXPORTS,
        resources_per_node={"nvidia.com/gpu": 1},
        limits=Limits(run_timeout_seconds=86400),
        placement=Placement(node_selector={"gpu": "h100"}),
        deferrable=True,
        retries=2,
        **every,
    )
    export = ExportCheckpointOperator(
        task_id="export", export_uri=EXPORTS, trainjob="{{ ti.xcom_pull('train')['trainjob'] }}", **every
    )
    evaluate = EvaluateOperator(
        task_id="evaluate",
        checkpoint_uri="{{ ti.xcom_pull('export')['uri'] }}",
        checkpoint_digest="{{ ti.xcom_pull('export')['digest'] }}",
        tasks=["held_out"],
        **every,
    )
    end = RetireRunOperator(task_id="end", retention="keep=5", trigger_rule="all_done", **every)
    start >> [pull, model] >> train
    pull >> preprocess >> dataset >> train >> export >> evaluate >> end
