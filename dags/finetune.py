"""The DAG `trainwright_finetune`: dataset and model prepared, a TrainJob, its checkpoint exported, the model evaluated.

The same chain as the Kubeflow pipeline `finetune`, through the same functions. Its parameters are asked for at the trigger.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from trainwright.operators import (
    EvaluateOperator,
    ExportCheckpointOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    TrainJobOperator,
)

PARAMETERS = {
    "dataset_uri": Param("", type="string", description="hf://org/name or file:///path"),
    "model_uri": Param("", type="string", description="hf://org/name or file:///path"),
    "export_uri": Param("", type="string", description="folder that holds exports"),
    "workspace_claim": Param("workspace", type="string", description="an existing PersistentVolumeClaim"),
    "workspace_path": Param("/workspace", type="string", description="where the workers see the claim"),
    "settings": Param("{}", type="string", description="training settings as JSON"),
    "num_nodes": Param(1, type="integer", minimum=1),
    "env": Param({}, type="object"),
    "run": Param("", type="string", description="name of the run; empty takes the DAG run's id"),
    "sample_row": Param(0, type="integer", minimum=0),
}
WORKSPACE = "pvc://{{ params.workspace_claim }}"
PATH = "{{ params.workspace_path }}"

with DAG(
    "trainwright_finetune",
    description="Fine-tune a language model with a TrainJob and export its checkpoint.",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=PARAMETERS,
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    dataset = InitializeDatasetOperator(task_id="initialize-dataset", dataset_uri="{{ params.dataset_uri }}", workspace_path=PATH)
    model = InitializeModelOperator(task_id="initialize-model", model_uri="{{ params.model_uri }}", workspace_path=PATH)
    training = TrainJobOperator(
        task_id="train",
        workspace=WORKSPACE,
        run="{{ params.run }}",
        dataset_uri="{{ params.dataset_uri }}",
        model_uri="{{ params.model_uri }}",
        settings="{{ params.settings }}",
        num_nodes="{{ params.num_nodes }}",
        num_proc_per_node=1,
        env="{{ params.env }}",  # type: ignore[arg-type]
    )
    export = ExportCheckpointOperator(
        task_id="export-checkpoint",
        export_uri="{{ params.export_uri }}",
        trainjob="{{ ti.xcom_pull('train')['trainjob'] }}",
        workspace_path=PATH,
    )
    evaluation = EvaluateOperator(
        task_id="evaluate",
        checkpoint_uri="{{ ti.xcom_pull('export-checkpoint')['uri'] }}",
        checkpoint_digest="{{ ti.xcom_pull('export-checkpoint')['digest'] }}",
        workspace=WORKSPACE,
        run="{{ params.run }}",
        workspace_path=PATH,
        sample_row="{{ params.sample_row }}",  # type: ignore[arg-type]
        env="{{ params.env }}",  # type: ignore[arg-type]
    )
    [dataset, model] >> training >> export >> evaluation  # type: ignore[operator]
