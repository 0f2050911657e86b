"""Decide about a model: what is in use, whether another one is better, where it is registered, and back again.

The champion is an alias below the folder of exports. `PromoteModelOperator` compares the figures of two evaluations on the same rows;
a first model is compared with its base model. `RollBackModelOperator` undoes the last promotion.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from trainwright.operators import PromoteModelOperator, ReadChampionOperator, RegisterModelOperator, RollBackModelOperator

EXPORT = {"checkpoint_uri": "{{ params.checkpoint_uri }}", "checkpoint_digest": "{{ params.checkpoint_digest }}"}
STORE = {"store_conn_id": "{{ params.store_conn_id }}"}

with DAG(
    "example_models",
    schedule=None,
    catchup=False,
    render_template_as_native_obj=True,
    params={
        "export_uri": Param("s3://models/support", type="string"),
        "checkpoint_uri": Param("s3://models/support/run-7/checkpoint-900", type="string"),
        "checkpoint_digest": Param("", type="string"),
        "evaluation": Param({"loss": 1.25}, type="object", description="figures, as EvaluateOperator returns them"),
        "registry": Param("mlflow://support", type="string"),
        "workspace_path": Param("", type="string", description="MLflow without a server keeps its models there"),
        "store_conn_id": Param("", type="string"),
    },
    tags=["trainwright", "example"],
) as dag:
    exports = {"export_uri": "{{ params.export_uri }}", **STORE}
    champion = ReadChampionOperator(task_id="champion", **exports)
    promote = PromoteModelOperator(
        task_id="promote", evaluation="{{ params.evaluation | tojson }}", metric="loss", margin=0.01, **EXPORT, **exports
    )
    register = RegisterModelOperator(
        task_id="register", registry="{{ params.registry }}", workspace_path="{{ params.workspace_path }}", **EXPORT, **STORE
    )
    roll_back = RollBackModelOperator(task_id="roll-back", reason="it was only an example", **exports)
    champion >> promote >> register >> roll_back
