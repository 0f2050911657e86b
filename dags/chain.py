"""The chain that the DAGs share: dataset and model prepared, a TrainJob, its checkpoint exported, the model evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param

from trainwright.operators import (
    EvaluateOperator,
    ExportCheckpointOperator,
    InitializeDatasetOperator,
    InitializeModelOperator,
    TrainJobOperator,
)

PARAMETERS = {
    "dataset_uri": Param("", type="string", description="hf://org/name, s3://bucket/folder or file:///path"),
    "model_uri": Param("", type="string", description="hf://org/name, s3://bucket/folder or file:///path"),
    "export_uri": Param("", type="string", description="folder that holds exports"),
    "workspace_claim": Param("workspace", type="string", description="an existing PersistentVolumeClaim"),
    "workspace_path": Param("/workspace", type="string", description="where the workers see the claim"),
    "settings": Param("{}", type="string", description="training settings as JSON"),
    "num_nodes": Param(1, type="integer", minimum=1),
    "env": Param({}, type="object"),
    "resume": Param("auto", type="string", description="auto, never, or the URI of an exported checkpoint"),
    "resume_secret": Param("", type="string", description="a Secret with what reads exports"),
    "run": Param("", type="string", description="name of the run; empty takes the DAG run's id"),
    "sample_row": Param(0, type="integer", minimum=0),
}


@dataclass(frozen=True)
class Chain:
    """The five tasks, for a DAG to put in order."""

    dataset: InitializeDatasetOperator
    model: InitializeModelOperator
    training: TrainJobOperator
    export: ExportCheckpointOperator
    evaluation: EvaluateOperator


def training_chain(setting: Callable[[str], str], *, folder: str = "", export: str = "") -> Chain:
    """The tasks, in the DAG that is being defined, not yet ordered.

    `setting` gives the template of the setting of a name (those of PARAMETERS). `folder` and `export`, templates too, are the
    folders below the workspace and below `export_uri` that are the run's own.
    """
    below = f"/{folder}" if folder else ""
    export_uri = f"{setting('export_uri')}/{export}" if export else setting("export_uri")
    workspace, path = f"pvc://{setting('workspace_claim')}{below}", f"{setting('workspace_path')}{below}"
    env: Any = setting("env")
    sample_row: Any = setting("sample_row")
    return Chain(
        InitializeDatasetOperator(task_id="initialize-dataset", dataset_uri=setting("dataset_uri"), workspace_path=path),
        InitializeModelOperator(task_id="initialize-model", model_uri=setting("model_uri"), workspace_path=path),
        TrainJobOperator(
            task_id="train",
            workspace=workspace,
            run=setting("run"),
            resume=setting("resume"),
            resume_secret=setting("resume_secret"),
            export_uri=export_uri,
            dataset_uri=setting("dataset_uri"),
            model_uri=setting("model_uri"),
            settings=setting("settings"),
            num_nodes=setting("num_nodes"),
            num_proc_per_node=1,
            env=env,
        ),
        ExportCheckpointOperator(
            task_id="export-checkpoint",
            export_uri=export_uri,
            trainjob="{{ ti.xcom_pull('train')['trainjob'] }}",
            workspace_path=path,
        ),
        EvaluateOperator(
            task_id="evaluate",
            checkpoint_uri="{{ ti.xcom_pull('export-checkpoint')['uri'] }}",
            checkpoint_digest="{{ ti.xcom_pull('export-checkpoint')['digest'] }}",
            workspace=workspace,
            run=setting("run"),
            workspace_path=path,
            sample_row=sample_row,
            env=env,
        ),
    )
