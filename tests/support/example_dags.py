"""The example DAGs by module, for tests of the current and of earlier versions of Airflow."""

from __future__ import annotations

DAG_IDS = {
    "approve_then_promote": "trainwright_approve_then_promote",
    "finetune": "trainwright_finetune",
    "full_pipeline": "trainwright_full_pipeline",
    "retrain_on_new_data": "trainwright_retrain_on_new_data",
    "scheduled_retraining": "trainwright_retraining",
    "sweep": "trainwright_sweep",
}
