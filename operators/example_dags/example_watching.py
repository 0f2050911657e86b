"""Act on trainings that others have submitted: an asset gets an event whenever a TrainJob of the namespace succeeds.

`TrainJobCompletionTrigger` needs a triggerer and the permission to list and watch TrainJobs. The event's payload names the job.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from trainwright.operators import TrainJobCompletionTrigger

TRAINED = Asset(
    "example_trained",
    watchers=[
        AssetWatcher(
            name="team", trigger=TrainJobCompletionTrigger(namespace="team", label_selector="team=nlp", conn_id="cluster")
        )
    ],
)

with DAG("example_watching", schedule=[TRAINED], catchup=False, tags=["trainwright", "example"]) as dag:

    @task
    def tell(triggering_asset_events: Any = None) -> list[str]:
        """The names of the jobs that have succeeded."""
        return [event.extra["payload"]["name"] for event in triggering_asset_events[TRAINED]]

    tell()
