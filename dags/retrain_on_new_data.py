"""The DAG `trainwright_retrain_on_new_data`: retraining when the asset `trainwright_dataset` changes, by the same steps as every week.

Whoever updates the dataset emits the event. Its `extra` may name the dataset as `dataset_uri`; else it is that of the parameters or of
the Variable `trainwright_retraining`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, task

from trainwright.example_dags.form import slim
from trainwright.example_dags.retraining import RETRAINING, retraining, setting
from trainwright.operators.values.airflow_api import AirflowFailException

DATASET = Asset(name="trainwright_dataset", uri="trainwright://dataset")


@task(task_id="find-dataset")
def find_dataset(default: str, *, triggering_asset_events: Any = None) -> str:
    """The URI of the dataset: that of the last event which names one, else the default. Fails without retries if it is no URI."""
    from trainwright.storage.errors import BadUri
    from trainwright.storage.uri import StorageUri

    events = (triggering_asset_events or {}).get(DATASET, [])
    named = [event.extra["dataset_uri"] for event in events if event.extra.get("dataset_uri")]
    if not named:
        return default
    try:
        StorageUri.parse(str(named[-1]))
    except BadUri as error:
        raise AirflowFailException(f"dataset_uri of the event of the asset {DATASET.name}: {error}") from None
    return str(named[-1])


with DAG(
    "trainwright_retrain_on_new_data",
    description="Retrain when the dataset has changed, and promote what is better than the champion.",
    schedule=[DATASET],
    catchup=False,
    max_active_runs=1,
    params=RETRAINING,
    render_template_as_native_obj=True,
    tags=["trainwright"],
) as dag:
    retraining(lambda: find_dataset(setting("dataset_uri")))
    slim(dag)
