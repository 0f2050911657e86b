"""The settings of a training step in the operators, and which of them are templates."""

from __future__ import annotations

from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS, SETTINGS, WAIT_SETTINGS

__all__ = ["EVALUATION_SETTINGS", "OWN_TEMPLATED", "PLACES", "SETTINGS", "TEMPLATED", "WAIT_SETTINGS"]
PLACES = ("workspace", "dataset_uri", "model_uri", "export_uri", "resume", "code", "manifest")
"""Settings of a training step that name paths, buckets and claims; see `allowed_places`."""
NOT_TEMPLATED = ("func",)
"""A function is not text; everything else is rendered."""
TEMPLATED = tuple(name for name in SETTINGS if name not in NOT_TEMPLATED)
OWN_TEMPLATED = (
    "namespace",
    "run_id",
    "submission_mode",
    "conn_id",
    "store_conn_id",
    "hub_conn_id",
    "tracking",
    "workspace_path",
)
"""Templates of TrainJobOperator besides the settings."""
