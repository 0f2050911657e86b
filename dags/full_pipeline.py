"""The DAG `trainwright_full_pipeline`: the whole chain with a tool for each part, as the Kubeflow pipeline `full_pipeline`.

DVC, Ray Data, a TrainJob, trackers, a store, lm-evaluation-harness, a registry: each tool runs on its embedded default unless an
address is given, and is installed on first use in an environment of its own.
"""

from __future__ import annotations

from functools import partial

from airflow.sdk import DAG, Param

from trainwright.example_dags.chain import (
    PARAMETERS,
    PROMOTION,
    STARTED,
    every_task,
    is_set,
    promotion,
    training_chain,
    workspace_settings,
)
from trainwright.example_dags.form import form, parameter
from trainwright.operators import PreprocessDatasetOperator, PullDvcDataOperator, RegisterModelOperator, TrainJobOperator

FULL = {
    **{name: param for name, param in PARAMETERS.items() if name != "dataset_uri"},
    "source": Param(
        "", type="string", description="data without dvc_repo: a path, file://, s3://, https://, of which DVC keeps a version"
    ),
    "dvc_repo": Param("", type="string", description="Git repository with DVC: its address, or a path"),
    "dvc_path": Param("", type="string", description="file or folder in dvc_repo"),
    "dvc_rev": Param("", type="string", description="branch, tag or commit of dvc_repo; empty: the default branch"),
    "columns": Param({}, type="object", description='column of the source for each column to keep, as {"prompt": "frage"}'),
    "transform": Param("", type="string", description="source of a function of a row, which returns the row, or None to drop it"),
    "deduplicate_by": Param([], type="array", description="columns in which equal rows are duplicates; empty: all"),
    "min_chars": Param(0, type="integer", minimum=0, description="minimum length of all texts of a row together"),
    "max_chars": Param(0, type="integer", minimum=0, description="maximum length of all texts of a row together; 0 has none"),
    "ray_address": Param(
        "", type="string", description="Ray cluster that sees the workspace at the same path; empty: a local one"
    ),
    "tracking": Param(
        ["mlflow", "wandb", "tensorboard"],
        type="array",
        description="where metrics go: mlflow, wandb, tensorboard, each also with an address, else to tracking/ in the workspace",
    ),
    "evaluation_tasks": Param(["held_out"], type="array", description="tasks of lm-evaluation-harness, before and after"),
    "retention": Param("keep=5", type="string", description="folders of earlier runs to keep: always, or keep=N"),
    **PROMOTION,
    "greater_is_better": Param(False, type="boolean", description="whether a greater promote_metric is better"),
    "registry": Param(
        "mlflow://trainwright",
        type="string",
        description="register the export: mlflow://model, hf://org/name or model-registry://host/model; empty: no",
    ),
    "registry_alias": Param("", type="string", description="tag (Hub) or alias (MLflow) that is moved to the registered version"),
}


PREPARED = {"dataset_uri": "{{ ti.xcom_pull('preprocess-dataset')['data_uri'] }}", "columns": ""}
"""Settings of the chain that are no parameters: its dataset is the preprocessed one, whose columns have their names already."""

with DAG(
    "trainwright_full_pipeline",
    description="From versioned data to a registered model: DVC, Ray Data, TrainJob, trackers, lm-eval.",
    schedule=None,
    catchup=False,
    params=form(FULL),
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    on_workspace = workspace_settings(parameter)
    pull = PullDvcDataOperator(
        task_id="pull-dvc-data",
        source=parameter("source"),
        repo=parameter("dvc_repo"),
        path=parameter("dvc_path"),
        rev=parameter("dvc_rev"),
        **on_workspace,
    )
    preprocess = PreprocessDatasetOperator(
        task_id="preprocess-dataset",
        data_uri="{{ ti.xcom_pull('pull-dvc-data')['data_uri'] }}",
        columns=parameter("columns"),
        transform=parameter("transform"),
        deduplicate_by=parameter("deduplicate_by"),
        min_chars=parameter("min_chars"),
        max_chars=parameter("max_chars"),
        ray_address=parameter("ray_address"),
        **on_workspace,
    )
    chain = training_chain(
        lambda name: PREPARED[name] if name in PREPARED else parameter(name),
        train=partial(TrainJobOperator, tracking=parameter("tracking"), workspace_path=STARTED % "path"),
    )
    register = RegisterModelOperator(
        task_id="register",
        checkpoint_uri="{{ ti.xcom_pull('export-checkpoint')['uri'] }}",
        checkpoint_digest="{{ ti.xcom_pull('export-checkpoint')['digest'] }}",
        registry=parameter("registry"),
        alias=parameter("registry_alias"),
        workspace_path=STARTED % "path",
        store_conn_id=parameter("store_conn_id"),
        hub_conn_id=parameter("hub_conn_id"),
        **every_task(),
    )
    chain.start >> pull >> preprocess >> chain.dataset >> chain.training
    chain.start >> chain.model >> chain.training >> chain.export >> chain.evaluation
    wanted = is_set.override(task_id="whether-to-register")(parameter("registry"))
    wanted >> register
    chain.evaluation >> [promotion(parameter, parameter("greater_is_better")), wanted]
