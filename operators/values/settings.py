"""The settings of a training step in the operators, and which of them are templates."""

from __future__ import annotations

from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS, SETTINGS, WAIT_SETTINGS
from trainwright.jobs.request.settings_table import TABLE
from trainwright.steps.parameter_tables import STEP_PARAMETERS


def step_fields(request: str) -> tuple[str, ...]:
    """The names of the parameters of a step, by the name of its request in `trainwright.steps.requests`."""
    return tuple(STEP_PARAMETERS[request])


__all__ = ["EVALUATION_SETTINGS", "OWN_TEMPLATED", "PLACES", "SETTINGS", "TEMPLATED", "WAIT_SETTINGS", "step_fields"]
PLACES = tuple(name for name, setting in TABLE.items() if setting.place)
"""Settings of a training step that name paths, buckets and claims; see `allowed_places`."""
NOT_TEMPLATED = ("func",)
"""A function is not text; everything else is rendered."""
TEMPLATED = tuple(name for name in SETTINGS if name not in NOT_TEMPLATED)
OWN_TEMPLATED = (
    "more",
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
