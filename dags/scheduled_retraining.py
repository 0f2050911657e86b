"""The DAG `trainwright_retraining`: every week the same chain, skipped where the dataset is the one of the last good run.

A good run ends with an event of the asset `trainwright_retrained_model`, whose `extra` says where the checkpoint lies: other
DAGs are scheduled on it, and the next run reads in it which dataset was trained on.

Settings come from the parameters of the run, else from the Variable `trainwright_retraining`, a JSON object with the same
names; a scheduled run has only the Variable.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, Param, task
from airflow.sdk.exceptions import AirflowSkipException

from trainwright.example_dags.chain import PARAMETERS, training_chain

MODEL = Asset(name="trainwright_retrained_model", uri="trainwright://retrained-model")
ROOT = "retraining"
"""In the workspace; each run has a folder of its own below it, as it has below `export_uri`."""
RUN = "{{ run_id | replace(':', '') | replace('+', '-') | replace('~', '-') }}"
"""The run's id without what paths in a volume do not take."""


def setting(name: str) -> str:
    """The template of a setting: the parameter if it differs from its default, else the Variable's, else the default."""
    chosen = f"params.{name} if params.{name} != {PARAMETERS[name].value!r} else "
    return f"{{{{ {chosen}var.json.get('trainwright_retraining', {{}}).get({name!r}, params.{name}) }}}}"


with DAG(
    "trainwright_retraining",
    description="Fine-tune again every week when there is new data, and announce the checkpoint.",
    schedule="@weekly",
    catchup=False,
    max_active_runs=1,
    params={**PARAMETERS, "force": Param(False, type="boolean", description="train on an unchanged dataset too")},
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    chain = training_chain(setting, folder=f"{ROOT}/{RUN}", export=RUN)

    @task(task_id="new-data", inlets=[MODEL])
    def new_data(*, ti: Any, params: dict[str, Any], inlet_events: Any) -> str:
        """The dataset's digest, if a model has yet to be trained on it; the task is skipped otherwise, and all after it."""
        digest: str = ti.xcom_pull(task_ids="initialize-dataset")["digest"]
        good = [event for event in inlet_events[MODEL] if "dataset_digest" in event.extra]
        if good and good[-1].extra["dataset_digest"] == digest and not params["force"]:
            reason = f"the run {good[-1].extra['run']} was trained on the same dataset, {digest}"
            ti.xcom_push("reason", reason)
            raise AirflowSkipException(reason)
        return digest

    @task(outlets=[MODEL])
    def publish(*, ti: Any, run_id: str, params: dict[str, Any], outlet_events: Any) -> None:
        """Announce the checkpoint: the run was good."""
        exported, evaluated = ti.xcom_pull(task_ids="export-checkpoint"), ti.xcom_pull(task_ids="evaluate")
        outlet_events[MODEL].extra = {
            "run": params["run"] or run_id,
            "checkpoint": exported["uri"],
            "manifest": exported["digest"],
            "step": exported["step"],
            "dataset_digest": ti.xcom_pull(task_ids="new-data"),
            "loss_before": evaluated["before"]["loss"],
            "loss_after": evaluated["after"]["loss"],
        }

    @task(trigger_rule="none_failed")
    def tidy(root: str) -> list[str]:
        """Remove the folders of this run and of those before it; a failed run keeps its own until the next good one."""
        folders = sorted(path for path in (Path(root) / ROOT).glob("*") if path.is_dir() and not path.is_symlink())
        for folder in folders:
            shutil.rmtree(folder)
        return [folder.name for folder in folders]

    announced = publish()
    chain.dataset >> new_data() >> chain.model >> chain.training >> chain.export >> chain.evaluation >> announced
    announced >> tidy(setting("workspace_path"))
