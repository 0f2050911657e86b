"""The DAG `trainwright_retraining`: weekly retraining, skipped if the dataset has not changed since the last successful run.

A successful run emits an event of the asset `trainwright_retrained_model`, whose `extra` has the URI of the checkpoint. Other
DAGs can be scheduled on it, and the next run reads from it which dataset was used.

Settings come from the parameters of the run, else from the Variable `trainwright_retraining`, a JSON object with the same
names. A scheduled run uses only the Variable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, Param, task
from airflow.sdk.exceptions import AirflowSkipException

from trainwright.example_dags.chain import PARAMETERS, training_chain

MODEL = Asset(name="trainwright_retrained_model", uri="trainwright://retrained-model")
RETENTION = "keep=1"
"""Retention of run folders in the workspace: the last run is kept for inspection, or to resume from its checkpoints."""
OWN = {
    **PARAMETERS,
    "retention": Param(RETENTION, type="string", description="folders of earlier runs to keep: always, or keep=N"),
    "force": Param(False, type="boolean", description="train even if the dataset is unchanged"),
}


def setting(name: str) -> str:
    """The template of a setting: the parameter if it differs from its default, else the Variable's value, else the default."""
    chosen = f"params.{name} if params.{name} != {OWN[name].value!r} else "
    return f"{{{{ {chosen}var.json.get('trainwright_retraining', {{}}).get({name!r}, params.{name}) }}}}"


with DAG(
    "trainwright_retraining",
    description="Retrain every week if there is new data, and publish the checkpoint.",
    schedule="@weekly",
    catchup=False,
    max_active_runs=1,
    params=OWN,
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    chain = training_chain(setting)

    @task(task_id="new-data", inlets=[MODEL])
    def new_data(*, ti: Any = None, params: Any = None, inlet_events: Any = None) -> str:
        """The dataset's digest if no model was trained on it yet. Otherwise this task and all after it are skipped."""
        digest: str = ti.xcom_pull(task_ids="initialize-dataset")["digest"]
        good = [event for event in inlet_events[MODEL] if "dataset_digest" in event.extra]
        if good and good[-1].extra["dataset_digest"] == digest and not params["force"]:
            reason = f"the run {good[-1].extra['run']} was trained on the same dataset, {digest}"
            ti.xcom_push("reason", reason)
            raise AirflowSkipException(reason)
        return digest

    @task(outlets=[MODEL])
    def publish(*, ti: Any = None, outlet_events: Any = None) -> None:
        """Emit the asset event with the checkpoint: the run was successful."""
        exported, evaluated = ti.xcom_pull(task_ids="export-checkpoint"), ti.xcom_pull(task_ids="evaluate")
        outlet_events[MODEL].extra = {
            "run": ti.xcom_pull(task_ids="start-run")["run_id"],
            "checkpoint": exported["uri"],
            "manifest": exported["digest"],
            "step": exported["step"],
            "dataset_digest": ti.xcom_pull(task_ids="new-data"),
            "loss_before": evaluated["before"]["loss"],
            "loss_after": evaluated["after"]["loss"],
        }

    @task(trigger_rule="none_failed")
    def tidy(namespace: str, conn_id: str, retention: str, *, ti: Any = None) -> list[str]:
        """Mark this run (even a skipped one) as ended, and delete folders of earlier runs by `retention`; never of active runs."""
        from trainwright.operators import TrainwrightHook
        from trainwright.steps.retire import retire_run

        started = ti.xcom_pull(task_ids="start-run")
        cluster = TrainwrightHook(conn_id).get_conn()
        space = namespace or cluster.default_namespace
        return retire_run(cluster, Path(started["path"]), run_id=started["run_id"], namespace=space, retention=retention)

    announced = publish()
    chain.start >> chain.dataset >> new_data() >> chain.model >> chain.training >> chain.export >> chain.evaluation >> announced
    announced >> tidy(setting("namespace"), setting("conn_id"), setting("retention"))
