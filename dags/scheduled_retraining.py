"""The DAG `trainwright_retraining`: weekly retraining, skipped if the data have not changed, promoted if better than the champion.

A successful run emits an event of the asset `trainwright_retrained_model`, whose `extra` has the URI of the checkpoint and the
decision. Other DAGs can be scheduled on it, and the next run reads from it which dataset was used.
"""

from __future__ import annotations

from airflow.sdk import DAG

from trainwright.example_dags.form import slim
from trainwright.example_dags.retraining import RETRAINING, retraining

with DAG(
    "trainwright_retraining",
    description="Retrain every week if there are new data, and promote what is better than the champion.",
    schedule="@weekly",
    catchup=False,
    max_active_runs=1,
    params=RETRAINING,
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    retraining()
    slim(dag)
