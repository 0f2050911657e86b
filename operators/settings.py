"""The settings of a training step in the operators, and which of them are templates."""

from __future__ import annotations

from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS, SETTINGS

__all__ = ["EVALUATION_SETTINGS", "SETTINGS", "TEMPLATED"]
NOT_TEMPLATED = ("func",)
"""A function is not text; everything else is rendered."""
TEMPLATED = tuple(name for name in SETTINGS if name not in NOT_TEMPLATED)
