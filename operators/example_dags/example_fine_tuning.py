"""Fine-tune step by step: prepare data and a model, train, export, evaluate, and end the run.

`StartRunOperator` names the run and creates the claim that all tasks share; what `training`, `data` and `evaluation` say is checked
here and passed on as `more`. A worker that mounts the claim (`workspace_path`) moves the files itself; otherwise pods do.
`finetune(...)` creates the same tasks as a group.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.operators import (
    EvaluateOperator,
    ExportCheckpointOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    PreprocessDatasetOperator,
    PullDvcDataOperator,
    RetireRunOperator,
    StartRunOperator,
    TrainJobOperator,
)

MODEL, EXPORTS = "hf://Qwen/Qwen3-0.6B", "s3://models/support"
RUN = {name: f"{{{{ ti.xcom_pull('start')['{name}'] }}}}" for name in ("run_id", "workspace")}
FILES = {**RUN, "workspace_path": "{{ ti.xcom_pull('start')['path'] }}", "store_conn_id": "s3", "conn_id": "cluster"}

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
    pull = PullDvcDataOperator(task_id="pull", source="s3://data/support", **FILES)
    preprocess = PreprocessDatasetOperator(
        task_id="preprocess", data_uri="{{ ti.xcom_pull('pull')['data_uri'] }}", deduplicate=True, min_chars=20, **FILES
    )
    rows = "{{ ti.xcom_pull('preprocess')['data_uri'] }}"
    dataset = InitializeDatasetOperator(
        task_id="dataset", dataset_uri=rows, more="{{ ti.xcom_pull('start')['data'] | tojson }}", **FILES
    )
    model = InitializeModelOperator(task_id="model", model_uri=MODEL, hub_conn_id="hub", **FILES)
    train = TrainJobOperator(
        task_id="train",
        dataset_uri=rows,
        dataset_digest="{{ ti.xcom_pull('dataset')['digest'] }}",
        model_uri=MODEL,
        model_digest="{{ ti.xcom_pull('model')['digest'] }}",
        model_shape="{{ ti.xcom_pull('model')['shape'] | tojson }}",
        export_uri=EXPORTS,
        resources_per_node={"nvidia.com/gpu": 1},
        more="{{ ti.xcom_pull('start')['training'] | tojson }}",
        deferrable=True,
        retries=2,
        conn_id="cluster",
        store_conn_id="s3",
        **RUN,
    )
    export = ExportCheckpointOperator(
        task_id="export", export_uri=EXPORTS, trainjob="{{ ti.xcom_pull('train')['trainjob'] }}", **FILES
    )
    evaluate = EvaluateOperator(
        task_id="evaluate",
        checkpoint_uri="{{ ti.xcom_pull('export')['uri'] }}",
        checkpoint_digest="{{ ti.xcom_pull('export')['digest'] }}",
        tasks=["held_out"],
        **FILES,
    )
    end = RetireRunOperator(task_id="end", retention="keep=5", trigger_rule="all_done", **FILES)
    start >> [pull, model] >> train
    pull >> preprocess >> dataset >> train >> export >> evaluate >> end
