"""The tasks that the DAGs share: prepare dataset and model, train in a TrainJob, export the checkpoint, evaluate the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from airflow.sdk import Param, task

from trainwright.example_dags.form import objects
from trainwright.operators import PromoteModelOperator, finetuning
from trainwright.operators.finetuning import Chain, Results, on_workspace

RETRIES = int(os.environ.get("TRAINWRIGHT_RETRIES", "0"))
"""Retries of every task, read when the DAG is parsed: they cannot be a parameter of a run."""
TRAINING = {
    "runtime": Param("", type="string"),
    "runtime_kind": Param("ClusterTrainingRuntime", type="string"),
    "builtin": Param("", type="string"),
    "settings": Param({}, type="object"),
    "image": Param("", type="string"),
    "command": Param([], type="array"),
    "args": Param([], type="array"),
    "env": Param({}, type="object"),
    "func_args": Param({}, type="object"),
    "packages_to_install": Param([], type="array"),
    "pip_index_urls": Param([], type="array"),
    "code": Param("", type="string"),
    "manifest": Param("", type=["string", "object"]),
    "num_nodes": Param(0, type="integer"),
    "num_proc_per_node": Param(0, type="integer"),
    "resources_per_node": Param({}, type="object"),
    "labels": Param({}, type="object"),
    "annotations": Param({}, type="object"),
    "runtime_patches": objects('[{"manager": "example.com/team", "trainingRuntimeSpec": {...}}]'),
    "dataset_env": Param({}, type="object"),
    "model_env": Param({}, type="object"),
    "queue_name": Param("", type="string"),
    "priority_class": Param("", type="string"),
    "topology": Param("", type="string"),
    "node_selector": Param({}, type="object"),
    "tolerations": objects('[{"key": "nvidia.com/gpu", "operator": "Exists"}]'),
    "affinity": Param({}, type="object"),
    "volumes": objects('[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]'),
    "volume_mounts": objects('[{"name": "data", "mountPath": "/data"}]'),
    "queue_timeout_seconds": Param(0, type="integer"),
    "start_timeout_seconds": Param(21600, type="integer"),
    "run_timeout_seconds": Param(604800, type="integer"),
    "fail_if_stuck": Param(True, type="boolean"),
    "fail_on_divergence": Param(True, type="boolean"),
    "lost_node_timeout_seconds": Param(0, type="integer"),
    "logs": Param("0", type="string"),
    "log_bytes": Param(16777216, type="integer"),
    "resume": Param("auto", type="string"),
    "previous_jobs": Param("keep", type="string"),
    "preemption_budget": Param(3, type="integer"),
    "restarts": Param(0, type="integer"),
    "on_changed_request": Param("adopt", type="string"),
    "adopt_finished": Param(False, type="boolean"),
    "on_cancel": Param("suspend", type="string"),
    "waiter_lease_seconds": Param(1800, type="integer"),
    "store_secret": Param("", type="string"),
    "hub_secret": Param("", type="string"),
    "dataset_secret": Param("", type="string"),
    "model_secret": Param("", type="string"),
    "resume_secret": Param("", type="string"),
}
"""Settings of the training step, named as in TrainJobOperator. docs/reference/parameters.md describes them."""
PARAMETERS = {
    "dataset_uri": Param("", type="string", description="hf://, s3://, gs://, az://, pvc:// or file:///path"),
    "model_uri": Param("", type="string", description="hf://, s3://, gs://, az://, pvc:// or file:///path"),
    "export_uri": Param("", type="string", description="folder for exports; each run has its own below it"),
    "workspace": Param(
        "workspace", type="string", description="claim, pvc://CLAIM[/FOLDER], or pvc://CLAIM?size=20Gi to create it"
    ),
    "workspace_path": Param("", type="string", description="where the claim is mounted in the workers; empty if it is not"),
    "runs_on": Param(
        "auto", type="string", enum=["auto", "worker", "cluster"], description="where data is prepared, exported and restored"
    ),
    "job": Param({}, type="object", description="settings of the pods in which that is done on the cluster"),
    "run_id": Param("", type="string", description="id of the run; defaults to DAG/RUN_ID of the DAG run"),
    "layout": Param("", type="string", description="layout of the dataset: alpaca, prompt-completion, messages, text ..."),
    "test_fraction": Param(0.1, type="number", minimum=0, maximum=1),
    "max_rows": Param(0, type="integer", minimum=0),
    "columns": Param({}, type="object", description="column of the dataset for each column to read, such as prompt"),
    "subset": Param("", type="string", description="subset of the dataset; * takes all files"),
    "split": Param("", type="string", description="split of the dataset to train on; defaults to train"),
    "resumable": Param(True, type="boolean", description="also export optimizer and random states"),
    "sample_row": Param(0, type="integer", minimum=0),
    "max_evaluation_rows": Param(0, type="integer", minimum=0),
    "evaluation_runtime": Param("causal-lm-evaluation", type="string"),
    "evaluation_image": Param("", type="string"),
    "evaluation_resources": Param({}, type="object"),
    "evaluation_tasks": Param([], type="array", description="tasks of lm-evaluation-harness to measure as well"),
    "few_shot": Param(-1, type="integer", description="examples before each question of these tasks; -1 takes the task's own"),
    "task_limit": Param(0, type="integer", minimum=0, description="first questions of each task to ask; 0 asks all"),
    "retention": Param("always", type="string", description="folders of earlier runs to keep: always, or keep=N"),
    "namespace": Param("", type="string"),
    "conn_id": Param("", type="string", description="connection of type trainwright or kubernetes"),
    "store_conn_id": Param("", type="string", description="connection with credentials for an object store"),
    "hub_conn_id": Param("", type="string", description="connection with the token of the hub as password"),
    **TRAINING,
}


STARTED = "{{ ti.xcom_pull('start-run')['%s'] }}"
"""Template of a result of the first task: run_id, workspace, path."""


def every_task() -> dict[str, Any]:
    """What all tasks have in common."""
    return {"retries": RETRIES} if RETRIES else {}


def workspace_settings(setting: Callable[[str], str]) -> dict[str, Any]:
    """What all tasks on the workspace of the run have in common."""
    return on_workspace(setting, every_task(), Results())


def training_chain(setting: Callable[[str], str], **more: Any) -> Chain:
    """Create the tasks of a fine-tuning in the current DAG, without dependencies. `setting` returns the template of a setting of
    PARAMETERS; `more` are arguments of `trainwright.operators.finetuning.training_chain`."""
    return finetuning.training_chain(
        lambda name: setting(name) if name in PARAMETERS else finetuning.UNSET, every=every_task(), **more
    )


PROMOTION = {
    "promote": Param(
        "better", type="string", enum=["", "better", "always"], description="when to promote the export to champion; empty: never"
    ),
    "promote_metric": Param(
        "loss", type="string", description="figure of the evaluation by which it is compared with the champion"
    ),
}


def promotion(setting: Callable[[str], str], greater_is_better: str | bool = False) -> Any:
    """Create the task `promote` in the current DAG, and return the one before it, which skips it if `promote` is empty."""
    promote = PromoteModelOperator(
        task_id="promote",
        export_uri=setting("export_uri"),
        checkpoint_uri="{{ ti.xcom_pull('export-checkpoint')['uri'] }}",
        checkpoint_digest="{{ ti.xcom_pull('export-checkpoint')['digest'] }}",
        evaluation="{{ ti.xcom_pull('evaluate')['evaluation'] }}",
        rule=setting("promote"),
        metric=setting("promote_metric"),
        greater_is_better=greater_is_better,
        store_conn_id=setting("store_conn_id"),
        **every_task(),
    )
    wanted = is_set.override(task_id="whether-to-promote")(setting("promote"))
    wanted >> promote
    return wanted


@task.short_circuit
def is_set(value: str) -> bool:
    """Whether a parameter is set; else the tasks after this one are skipped."""
    return bool(value)
