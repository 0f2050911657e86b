"""Describes what a task has produced in the events of its outlets, for the DAGs that are scheduled on these assets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context


def describe_outlets(operator: Any, context: Context, **facts: Any) -> None:
    """Add facts to the `extra` of the events of all assets and asset aliases that the task has as outlets; empty ones are left out.

    What others have set there under the same names stays.
    """
    accessors = context.get("outlet_events") if hasattr(context, "get") else None
    if not operator.outlets or accessors is None:
        return
    from airflow.sdk import Asset, AssetAlias

    known = {name: _finite(value) for name, value in facts.items() if value not in (None, "", {})}
    for outlet in operator.outlets:
        if isinstance(outlet, Asset | AssetAlias):
            extra = accessors[outlet].extra
            extra.update({name: value for name, value in known.items() if name not in extra})


def _finite(value: Any) -> Any:
    """Return a value for JSON, which has no NaN: metrics without those that are not finite."""
    if isinstance(value, dict):
        return {name: entry for name, entry in value.items() if not isinstance(entry, float) or math.isfinite(entry)}
    return value
